#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer::detail {

/// A tokenizer whose decode() leaves unknown tokens out; in all else the given one.
class UnknownDroppingTokenizer final : public Tokenizer {
 public:
  explicit UnknownDroppingTokenizer(std::shared_ptr<const Tokenizer> given) : given_(std::move(given)) {}

  std::string kind() const override { return given_->kind(); }
  index_t vocabulary_size() const override { return given_->vocabulary_size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override { return given_->encode(text); }
  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    return given_->encode_sampled(text, sampling, rng);
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<std::int32_t> known(ids.begin(), ids.end());
    std::erase(known, given_->unknown_id());
    return given_->decode(known);
  }
  std::string token(std::int32_t id) const override { return given_->token(id); }
  std::int32_t unknown_id() const override { return given_->unknown_id(); }
  void save(const std::filesystem::path& directory, const std::string& name) const override {
    given_->save(directory, name);
  }

 private:
  std::shared_ptr<const Tokenizer> given_;
};

/// The tokenizer, which must not be null and must keep unknown tokens, as loaded and trained ones do; or one
/// that leaves them out when decoding.
inline std::shared_ptr<const Tokenizer> with_unknown_tokens(std::shared_ptr<const Tokenizer> tokenizer,
                                                            UnknownTokens unknown) {
  if (unknown == UnknownTokens::keep) return tokenizer;
  return std::make_shared<UnknownDroppingTokenizer>(std::move(tokenizer));
}

}  // namespace eigenformer::detail
