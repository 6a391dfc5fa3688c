#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "translator/preparing/unicode_text.hpp"

namespace eigenformer {

/// The text files of a corpus: two line-aligned ones, or a single TSV file. Each may be plain, gzip or zstd,
/// which is detected from its first bytes.
struct PrepareFiles {
  std::filesystem::path source{},  ///< source sentences, one per line; empty with tsv
      target{},                    ///< target sentences, one per line; empty with tsv
      tsv{};                       ///< lines of source, tab, target; empty with source and target
};

namespace detail {

// Whether a text can be a tag, a token that no text is cut into: "<...>" without a space or comma.
bool is_tag(const std::string& text);
// Splits a text at separators; an empty text has no parts.
std::vector<std::string> parts_of(const std::string& text, char separator);

// Throws ValueError unless the size of a new vocabulary is 0 or has room for more than the special entries.
void require_vocab_size(const char* op, index_t vocab_size);
// The fields of a new vocabulary, of preparing and of training.
void vocabulary_fields(auto& self, auto&& visit) {
  visit(OptionField{"tokenizer", "tokenizer: char, word or subword"}, self.tokenizer);
  visit(OptionField{"vocab_size",
                    "maximum vocabulary size; 0: chosen for the text (subword), 8000 (word, char)",
                    Allowed::not_negative},
        self.vocab_size);
  visit(OptionField{"separate_vocab", "a separate vocabulary for each language instead of a joint one"},
        self.separate_vocab);
}

}  // namespace detail

/// Which pairs of a corpus are kept, and how they are tokenized.
struct PrepareOptions {
  bool nfc = detail::has_unicode_text();  ///< compose letters and accents (NFC), which needs ICU
  bool deduplicate = true;                ///< drop pairs equal to an earlier one, after normalisation
  bool drop_identical = true;             ///< drop pairs whose sides are equal
  index_t max_characters = 2000;          ///< most code points of a side; 0: no limit
  double max_ratio = 9;         ///< most code points of the longer side per one of the shorter; 0: no limit
  std::string source_script{},  ///< scripts of the source, see Scripts; empty: any
      target_script{};          ///< scripts of the target, see Scripts; empty: any
  double script_share = 0.5;    ///< least share of the letters of a side that are of its scripts
  index_t max_length = 256;     ///< most tokens of a side, without begin and end; at most 65535
  std::string tokenizer = has_subword_tokenizer() ? "subword" : "word";  ///< char, word or subword
  /// Most entries of a vocabulary, the four special ones included; 0: for subwords chosen for the text, by
  /// the rule of a new training, otherwise 8000.
  index_t vocab_size = 0;
  bool separate_vocab = false;     ///< a vocabulary for each language instead of a joint one
  std::string tags{};              ///< tokens that the source vocabulary reserves, separated by commas
  index_t sample_pairs = 200'000;  ///< number of random pairs that the vocabulary is trained on
  std::uint64_t seed = 1;          ///< seed of that random sample

  /// Calls visit(OptionField, field) for each field.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"nfc", "normalise texts to Unicode NFC"}, self.nfc);
    visit(OptionField{"deduplicate", "drop repeated pairs"}, self.deduplicate);
    visit(OptionField{"drop_identical", "drop pairs whose source and target are equal"}, self.drop_identical);
    visit(OptionField{"max_characters", "drop pairs with more characters on one side; 0: no limit",
                      Allowed::not_negative},
          self.max_characters);
    visit(OptionField{"max_ratio",
                      "drop pairs whose longer side has more than this many times the characters of the "
                      "shorter; 0: no limit",
                      Allowed::not_negative},
          self.max_ratio);
    visit(OptionField{"source_script",
                      "scripts of the source, such as Latin or Hani,Hira,Kana; not given: any"},
          self.source_script);
    visit(OptionField{"target_script", "scripts of the target; not given: any"}, self.target_script);
    visit(
        OptionField{"script_share", "drop pairs with a smaller share of letters in these scripts on one side",
                    Allowed::share},
        self.script_share);
    visit(OptionField{"max_length", "drop pairs with more tokens on one side", Allowed::positive},
          self.max_length);
    detail::vocabulary_fields(self, visit);
    visit(OptionField{"tags", "tokens that the vocabulary reserves, such as <2de>,<2fr>"}, self.tags);
    visit(OptionField{"sample_pairs", "number of random pairs that the vocabulary is built from",
                      Allowed::positive},
          self.sample_pairs);
    visit(OptionField{"seed", "seed of the sample"}, self.seed);
  }

  /// The tokens named in `tags`, in their order; not validated.
  std::vector<std::string> reserved() const;

  /// Throws ValueError that names an invalid field, for an unknown script, and for nfc or a script in a
  /// program built without ICU.
  void validate() const;
};

/// How many pairs were read, dropped and kept, and the size of the vocabulary; a dropped pair is counted
/// once, for the first reason that applies.
struct PrepareReport {
  index_t read = 0;               ///< all pairs
  index_t invalid = 0;            ///< dropped: not UTF-8, a NUL byte, or a line without a tab
  index_t empty = 0;              ///< dropped: nothing but white space, or no token, on one side
  index_t identical = 0;          ///< dropped: both sides equal
  index_t characters = 0;         ///< dropped: more code points than max_characters
  index_t ratio = 0;              ///< dropped: lengths beyond max_ratio
  index_t script = 0;             ///< dropped: too few letters of the expected scripts
  index_t duplicates = 0;         ///< dropped: equal to an earlier pair
  index_t over_long = 0;          ///< dropped: more tokens than max_length
  index_t validation = 0;         ///< held out for validation
  index_t kept = 0;               ///< pairs of the token file
  index_t source_tokens = 0,      ///< source tokens of the kept pairs
      target_tokens = 0;          ///< target tokens of the kept pairs
  index_t sampled = 0;            ///< pairs that the vocabulary was trained on; 0 with given tokenizers
  index_t source_vocabulary = 0,  ///< entries of the source's vocabulary
      target_vocabulary = 0;      ///< entries of the target's, the same for a joint one

  /// Calls visit(OptionField, field) for each count.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"read", "pairs read"}, self.read);
    visit(OptionField{"invalid", "not UTF-8, or without a tab"}, self.invalid);
    visit(OptionField{"empty", "empty on one side"}, self.empty);
    visit(OptionField{"identical", "source and target equal"}, self.identical);
    visit(OptionField{"characters", "too many characters"}, self.characters);
    visit(OptionField{"ratio", "lengths too different"}, self.ratio);
    visit(OptionField{"script", "wrong script"}, self.script);
    visit(OptionField{"duplicates", "duplicates"}, self.duplicates);
    visit(OptionField{"over_long", "too many tokens"}, self.over_long);
    visit(OptionField{"validation", "held out for validation"}, self.validation);
    visit(OptionField{"kept", "pairs to train on"}, self.kept);
    visit(OptionField{"source_tokens", "source tokens"}, self.source_tokens);
    visit(OptionField{"target_tokens", "target tokens"}, self.target_tokens);
    visit(OptionField{"sampled", "pairs that the vocabulary was built from"}, self.sampled);
    visit(OptionField{"source_vocabulary", "entries of the source vocabulary"}, self.source_vocabulary);
    visit(OptionField{"target_vocabulary", "entries of the target vocabulary"}, self.target_vocabulary);
  }

  /// A readable table with one line per count.
  std::string str() const;
};

}  // namespace eigenformer
