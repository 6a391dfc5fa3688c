#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/data/text/charsmap.hpp"
#include "eigenformer/data/text/icu_text.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/tokenizers/added_tokens.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"

namespace eigenformer::detail {

/// How a MetaspaceTokenizer normalises and splits a text.
struct MetaspaceOptions {
  /// One step of normalisation.
  struct Step {
    std::string name{},  ///< "charsmap", "strip", "spaces" or "replace"
        argument{},  ///< charsmap: its bytes; strip: "left", "right" or "both"; replace: the text to replace
        replacement{};  ///< spaces: what a run of two or more spaces becomes; replace: the new text
  };

  std::vector<Step> normalizer{};  ///< steps, applied in this order
  bool split_white_space = false;  ///< words end at white space, which is dropped
  /// Where U+2581, the mark of a space, is added: before each word ("always"), before the text ("first"),
  /// "never".
  std::string prepend = "always";
  bool split = true;  ///< words begin at each mark
};

/// A SentencePiece model as implemented by Hugging Face's tokenizers package: spaces become U+2581, and words
/// are segmented by a unigram model or byte pair encoding. It differs from SentencePiece for characters that
/// the package normalises differently.
class MetaspaceTokenizer final : public ForeignTokenizer {
 public:
  /// Makes a tokenizer with a unigram model. scores: log probabilities by id, NaN for a token that is not a
  /// piece. Throws ValueError for invalid options, scores, or ids outside the vocabulary.
  MetaspaceTokenizer(ForeignVocabulary given, MetaspaceOptions options, std::vector<double> scores,
                     std::vector<AddedToken> added = {})
      : MetaspaceTokenizer(std::move(given), std::move(options), std::move(added)) {
    model_ = UnigramModel(std::move(scores), vocabulary().tokens);
  }
  /// Makes a tokenizer with byte pair encoding. merges: left and right tokens in turn, by descending
  /// priority. Throws ValueError for invalid options, a merge with an unknown token, or ids outside the
  /// vocabulary.
  MetaspaceTokenizer(ForeignVocabulary given, MetaspaceOptions options, std::vector<std::string> merges,
                     std::vector<AddedToken> added = {})
      : MetaspaceTokenizer(std::move(given), std::move(options), std::move(added)) {
    model_ = PairModel(std::move(merges), [&](std::string_view token) { return find(token); });
  }

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static MetaspaceTokenizer load(const std::filesystem::path& directory,
                                 const std::string& name = "tokenizer");

  std::string kind() const override { return "metaspace"; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const SubwordSampling none;
    RandomGenerator unused;
    return encode(text, Draw{none, unused});
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    require_rate_of(std::holds_alternative<PairModel>(model_), sampling);
    return encode(text, Draw{sampling, rng});
  }

  EIGENFORMER_IO_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

  /// Applies the steps of MetaspaceOptions::normalizer to UTF-8 text. Throws ValueError when ICU fails.
  std::string normalize(std::string_view text) const;

 protected:
  EIGENFORMER_IO_FUNCTION void add_parts(TokenizerParts& parts) const override;

 private:
  MetaspaceTokenizer(ForeignVocabulary given, MetaspaceOptions options, std::vector<AddedToken> added);

  // How words are segmented.
  struct Draw {
    const SubwordSampling& sampling;
    RandomGenerator& rng;
  };

  std::vector<std::int32_t> encode(std::string_view text, Draw draw) const;

  void append_text(std::vector<std::int32_t>& ids, std::string_view text, bool at_begin, Draw draw) const;

  void append_words(std::vector<std::int32_t>& ids, std::string_view text, bool at_begin, Draw draw) const;

  void append_word(std::vector<std::int32_t>& ids, std::string_view word, Draw draw) const;

  MetaspaceOptions options_;
  std::vector<Charsmap> charsmaps_;
  AddedTokens added_;
  std::variant<UnigramModel, PairModel> model_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION MetaspaceTokenizer MetaspaceTokenizer::load(const std::filesystem::path& directory,
                                                                    const std::string& name) {
  return made_of_parts("metaspace", directory, name, [](const TokenizerParts& parts) {
    MetaspaceOptions options;
    const std::vector<std::string> steps = parts.list("normalizer");
    if (steps.size() % 3 != 0) throw parts.refuse({"is damaged in its part 'normalizer'"});
    for (std::size_t i = 0; i < steps.size(); i += 3)
      options.normalizer.push_back({steps[i], steps[i + 1], steps[i + 2]});
    options.split_white_space = parts.contains("split_white_space");
    options.prepend = parts.get("prepend");
    options.split = parts.contains("split");
    if (parts.contains("merges")) {
      return MetaspaceTokenizer(read_vocabulary(parts), std::move(options), parts.list("merges"),
                                AddedTokens::read(parts));
    }
    std::vector<double> scores;
    for (const std::string& item : parts.list("scores")) {
      double score = std::numeric_limits<double>::quiet_NaN();
      if (!item.empty()) {
        const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), score);
        if (error != std::errc() || end != item.data() + item.size()) {
          throw ValueError("tokenizer", {"'", item, "' is not a score, expected a number"});
        }
      }
      scores.push_back(score);
    }
    return MetaspaceTokenizer(read_vocabulary(parts), std::move(options), std::move(scores),
                              AddedTokens::read(parts));
  });
}

EIGENFORMER_IO_FUNCTION std::string MetaspaceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool first = options_.prepend != "never";
  for (const std::string& piece : pieces(ids)) {
    for (std::size_t i = 0; i < piece.size();) {
      if (std::string_view(piece).substr(i).starts_with(space_mark)) {
        if (!first) text += ' ';
        i += space_mark.size();
      } else {
        text += piece[i++];
      }
    }
    first = false;
  }
  return text;
}

// The text with `to` in place of each run of two or more spaces.
inline std::string without_runs_of_spaces(const std::string& text, const std::string& to) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = text[i] == ' ' ? std::min(text.find_first_not_of(' ', i), text.size()) : i + 1;
    out += end - i > 1 ? to : text.substr(i, 1);
    i = end;
  }
  return out;
}

EIGENFORMER_IO_FUNCTION std::string MetaspaceTokenizer::normalize(std::string_view text) const {
  std::string out(text);
  std::size_t table = 0;
  for (const MetaspaceOptions::Step& step : options_.normalizer) {
    if (step.name == "charsmap") {
      out = charsmaps_[table++].apply(out);
    } else if (step.name == "strip") {
      if (step.argument != "left") out.erase(before_run(out, out.size(), icu::is_white_space));
      if (step.argument != "right") out.erase(0, after_run(out, 0, icu::is_white_space));
    } else if (step.name == "spaces") {
      out = without_runs_of_spaces(out, step.replacement);
    } else {
      replace_all(out, step.argument, step.replacement);
    }
  }
  return out;
}

EIGENFORMER_IO_FUNCTION void MetaspaceTokenizer::add_parts(TokenizerParts& parts) const {
  std::vector<std::string> steps;
  for (const auto& [name, argument, replacement] : options_.normalizer) {
    for (const std::string& item : {name, argument, replacement}) steps.push_back(item);
  }
  parts.set_list("normalizer", steps);
  if (options_.split_white_space) parts.set("split_white_space", "");
  parts.set("prepend", options_.prepend);
  if (options_.split) parts.set("split", "");
  added_.add_to(parts);
  if (const auto* pairs = std::get_if<PairModel>(&model_)) {
    parts.set_list("merges", pairs->merges());
    return;
  }
  std::vector<std::string> items;
  for (const double score : std::get<UnigramModel>(model_).scores()) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, score).ptr;
    items.emplace_back(digits, std::isnan(score) ? digits : end);  // nothing: no piece
  }
  parts.set_list("scores", items);
}

EIGENFORMER_IO_FUNCTION MetaspaceTokenizer::MetaspaceTokenizer(ForeignVocabulary given,
                                                               MetaspaceOptions options,
                                                               std::vector<AddedToken> added)
    : ForeignTokenizer(std::move(given)), options_(std::move(options)) {
  if (options_.prepend != "always" && options_.prepend != "first" && options_.prepend != "never") {
    throw ValueError("tokenizer", {"prepend is '", options_.prepend, "', expected always, first or never"});
  }
  for (const MetaspaceOptions::Step& step : options_.normalizer) {
    if (step.name == "charsmap") {
      charsmaps_.emplace_back(step.argument);
    } else if (step.name != "strip" && step.name != "spaces" &&
               (step.name != "replace" || step.argument.empty())) {
      throw ValueError("tokenizer", {"the normaliser has the unknown step '", step.name,
                                     "' with the argument '", step.argument, "'"});
    }
  }
  for (AddedToken& token : added) {
    if (token.normalized) token.text = normalize(token.text);
  }
  added_ = AddedTokens(std::move(added));
  added_.require_ids(vocabulary_size());
}

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> MetaspaceTokenizer::encode(std::string_view text,
                                                                             Draw draw) const {
  const std::string valid = valid_utf8(text);
  std::vector<std::int32_t> ids;
  const auto put = [&](std::int32_t id) { ids.push_back(id); };
  added_.split<icu::AddedTokenCharacters>(valid, false, put, [&](std::string_view part, std::size_t begin) {
    const std::string normal = normalize(part);
    added_.split<icu::AddedTokenCharacters>(normal, true, put, [&](std::string_view rest, std::size_t inner) {
      append_text(ids, rest, begin == 0 && inner == 0, draw);
    });
  });
  return ids;
}

EIGENFORMER_IO_FUNCTION void MetaspaceTokenizer::append_text(std::vector<std::int32_t>& ids,
                                                             std::string_view text, bool at_begin,
                                                             Draw draw) const {
  if (!options_.split_white_space) return append_words(ids, text, at_begin, draw);
  std::size_t begin = 0, at = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (icu::is_white_space(c)) {
      if (begin < at) append_words(ids, text.substr(begin, at - begin), at_begin && begin == 0, draw);
      begin = at + bytes.size();
    }
    at += bytes.size();
  });
  if (begin < at) append_words(ids, text.substr(begin), at_begin && begin == 0, draw);
}

EIGENFORMER_IO_FUNCTION void MetaspaceTokenizer::append_words(std::vector<std::int32_t>& ids,
                                                              std::string_view text, bool at_begin,
                                                              Draw draw) const {
  std::string marked(text);
  replace_all(marked, " ", space_mark);
  const bool wanted = options_.prepend == "always" || (options_.prepend == "first" && at_begin);
  if (wanted && !marked.starts_with(space_mark)) marked.insert(0, space_mark);
  for (std::size_t begin = 0; begin < marked.size();) {
    std::size_t end = marked.size();
    if (options_.split) end = std::min(end, marked.find(space_mark, begin + 1));
    append_word(ids, std::string_view(marked).substr(begin, end - begin), draw);
    begin = end;
  }
}

EIGENFORMER_IO_FUNCTION void MetaspaceTokenizer::append_word(std::vector<std::int32_t>& ids,
                                                             std::string_view word, Draw draw) const {
  const auto search = [&](std::string_view piece) { return find(piece); };
  const auto put = [&](std::int32_t id) {
    if (id < 0) id = vocabulary().unknown_id;
    if (id >= 0) ids.push_back(id);
  };
  const double alpha = draw.sampling.unigram_alpha;
  if (const auto* pairs = std::get_if<PairModel>(&model_)) {
    pairs->segment(word, draw.sampling.bpe_dropout, draw.rng, search, put);
  } else if (alpha == 0) {
    std::get<UnigramModel>(model_).segment(word, search, put);
  } else {
    const auto path = std::get<UnigramModel>(model_).sample(word, alpha, draw.rng, search);
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (path[i].id >= 0 || i == 0 || path[i - 1].id >= 0) put(path[i].id);  // a run of unknown ones is one
    }
  }
}

}  // namespace eigenformer::detail

#endif
