#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/search/text/text_translator.hpp"

namespace eigenformer {

/// The interface through which a Translator translates lines: a TextTranslator without its model's type. Its
/// functions are called from several threads at once.
class LineTranslator {
 public:
  virtual ~LineTranslator() = default;
  /// The options that lines are translated with.
  virtual const TextTranslatorOptions& options() const = 0;
  /// Returns a translator of the same model with other options. Throws ValueError for invalid options.
  virtual std::shared_ptr<const LineTranslator> with_options(TextTranslatorOptions options) const = 0;
  /// Identifies the model and adapter; with_options() keeps it. Lines of two translators may share a batch
  /// only if their identities are equal.
  virtual const void* identity() const noexcept { return nullptr; }
  /// As TextTranslator::prepare().
  virtual PreparedLine prepare(const std::string& line, std::uint64_t number,
                               const std::string& prefix) const = 0;
  /// As TextTranslator::alternatives().
  virtual std::vector<std::vector<Translation>> alternatives(
      std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer) const = 0;
  /// As TextTranslator::text_of().
  virtual std::string text_of(const PreparedLine& line, std::span<const std::int32_t> ids) const = 0;
};

namespace detail {

template <class M>
class ModelLineTranslator final : public LineTranslator {
 public:
  // owner: keeps the model alive; null: the caller does.
  ModelLineTranslator(TextTranslator<M> translator, std::shared_ptr<const void> owner,
                      std::shared_ptr<const char> identity = std::make_shared<const char>())
      : owner_(std::move(owner)), identity_(std::move(identity)), translator_(std::move(translator)) {}

  const TextTranslatorOptions& options() const override { return translator_.options(); }
  std::shared_ptr<const LineTranslator> with_options(TextTranslatorOptions options) const override {
    return std::make_shared<ModelLineTranslator>(translator_.with_options(std::move(options)), owner_,
                                                 identity_);
  }
  const void* identity() const noexcept override { return identity_.get(); }
  PreparedLine prepare(const std::string& line, std::uint64_t number,
                       const std::string& prefix) const override {
    return translator_.prepare(line, number, prefix);
  }
  std::vector<std::vector<Translation>> alternatives(
      std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer) const override {
    return translator_.alternatives(lines, std::move(observer));
  }
  std::string text_of(const PreparedLine& line, std::span<const std::int32_t> ids) const override {
    return translator_.text_of(line, ids);
  }

 private:
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const char> identity_;
  TextTranslator<M> translator_;
};

}  // namespace detail

/// Wraps a TextTranslator for a Translator. owner: owns the model and is kept alive; null: the caller keeps
/// the model alive.
template <class M>
std::shared_ptr<const LineTranslator> line_translator(TextTranslator<M> translator,
                                                      std::shared_ptr<const void> owner = nullptr) {
  return std::make_shared<detail::ModelLineTranslator<M>>(std::move(translator), std::move(owner));
}

}  // namespace eigenformer
