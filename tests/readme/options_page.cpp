/// Writes docs/options.md from the lists of fields of the options structs; with a path, tells whether that
/// file is what it would write.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "eigenformer/nn/options/layer.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/train/options/options.hpp"
#include "translator/preparing/prepare_options.hpp"
#include "translator/serving/options.hpp"
#include "translator/text/output_format.hpp"
#include "translator/tool/options/corpus_options.hpp"
#include "translator/tool/options/default_model.hpp"
#include "translator/tool/options/option_names.hpp"
#include "translator/tool/options/option_rows.hpp"

namespace ef = eigenformer;
using translator::OptionKind;
using translator::OptionRow;
using Rows = std::vector<OptionRow>;

namespace {

const char* type_text(OptionKind kind) {
  switch (kind) {
    case OptionKind::flag:
      return "true or false";
    case OptionKind::whole_number:
    case OptionKind::unsigned_number:
      return "whole number";
    case OptionKind::number:
      return "number";
    case OptionKind::word:
      return "word";
    case OptionKind::text:
      return "text";
    case OptionKind::ids:
      break;
  }
  return "ids";
}

std::string code(const std::string& text) { return text.empty() ? text : "`" + text + "`"; }

/// Whether a command has a flag for the field.
using HasFlag = std::function<bool(const OptionRow&)>;

/// One struct. tool: its rows with the defaults of the translator; empty: the same.
void write_table(std::string& page, const char* name, const char* text, const Rows& rows,
                 const HasFlag& has_flag = {}, const Rows& tool = {}) {
  page += std::string("\n## ") + name + "\n\n" + text + "\n\n| name |" + (has_flag ? " flag |" : "") +
          " type | default | allowed | meaning |\n|---|" + (has_flag ? "---|" : "") + "---|---|---|---|\n";
  for (const OptionRow& row : rows) {
    if (!row.group.empty()) continue;  // a stack's own values of what the table has already
    std::string flag, fallback = code(row.fallback);
    if (row.fallback == "0" && row.allowed == ef::detail::allowed_text(ef::Allowed::positive))
      fallback = "required";
    if (has_flag && has_flag(row)) {
      // What is true by default has use for the flag that turns it off.
      flag = code(translator::flag_of_name((row.fallback == "true" ? "no_" : "") + row.name));
      const std::string shorter = translator::flag_of_field(row.name);
      if (!translator::short_name(row.name).empty()) flag = code(shorter) + ", " + flag;
    }
    const auto other = std::find_if(
        tool.begin(), tool.end(), [&](const OptionRow& o) { return o.group.empty() && o.name == row.name; });
    if (!flag.empty() && other != tool.end() && other->fallback != row.fallback)
      fallback += ", `translator` " + code(other->fallback);
    page += "| " + code(row.name) + " | " + (has_flag ? flag + " | " : "") + type_text(row.kind) + " | " +
            fallback + " | " + row.allowed + " | " +
            (row.owner.empty() ? ""
                               : "with " + code(row.owner) +
                                     (row.owner_word.empty() ? "" : " " + code(row.owner_word)) + ": ") +
            row.help + " |\n";
  }
}

template <class O>
Rows without(Rows rows, const O& part) {
  std::set<std::string> names;
  for (const OptionRow& row : translator::option_rows(part)) names.insert(row.name);
  std::erase_if(rows, [&](const OptionRow& row) { return names.count(row.name) > 0; });
  return rows;
}

std::string page() {
  using translator::option_rows;
  std::string page = R"(# Options

<!-- Written by tests/readme/options_page.cpp: see CONTRIBUTING.md. -->

Each options struct lists its fields once. Validation, JSON, the flags of `translator` and this page are generated from that list
([extending.md](library/extending.md) shows how). Names are those of the fields in a model folder's `options.json`. In C++ most are members of the same name. Some are members
of a nested struct: `dropout` is `layer.dropout.rate`, `norm` is `layer.norm.kind`, `num_encoder_layers` is `encoder.num_layers`. A field of one kind of positions is a member
of that struct: `rotary_base` is `RotaryPositions::base`. An empty default means that the option is not set.
For a new model `translator train` plans what is not given ([plan.md](training/plan.md)). With `--init-from`, model options are those of the model, and the
others have the defaults below.

`translator train --help` lists the flags; `--help-all` also lists those of single kinds of positions and of one stack. A flag that is off by default is given alone
(`--gated`); one that is on by default is turned off with `no-` (`--no-bias`); `=false` and `=true` work for all.
)";
  const HasFlag trains = [](const OptionRow& row) {
    return !translator::is_among(row.name, translator::model_fields_without_flag);
  };
  const HasFlag decodes = [](const OptionRow& row) {
    return !translator::is_among(row.name, translator::decoding_fields_without_flag);
  };
  const HasFlag every = [](const OptionRow&) { return true; };
  const Rows tool = option_rows(translator::default_model());
  const ef::LayerOptions layer;

  write_table(page, "LayerOptions",
              "One encoder or decoder layer, with `DropoutOptions`, `NormStyle` and `AttentionPositions`. In "
              "a model with two stacks, each stack can have its own values\nof these fields: under `encoder` "
              "or `decoder` in files, with `--encoder-` or `--decoder-` before the long flag, such as "
              "`--decoder-num-heads 4`. `d_model` is the same for both.",
              option_rows(layer), trains, tool);
  write_table(
      page, "Seq2SeqOptions",
      "Also has the fields of LayerOptions. `translator train` sets those without a flag from its data. "
      "`--layers` sets both numbers of layers. `--tie auto`, its default,\nis `all`, or `target` with "
      "`--separate-vocab`. `--encoder-final-norm` and `--decoder-final-norm` apply to one stack.",
      without(option_rows(ef::Seq2SeqOptions{}), layer), trains, tool);
  write_table(page, "EncoderOptions, DecoderOptions",
              "A single stack (`StackOptions`). Also has the fields of LayerOptions.",
              without(option_rows(ef::EncoderOptions{}), layer));
  write_table(page, "LanguageModelOptions", "Also has the fields of LayerOptions.",
              without(option_rows(ef::LanguageModelOptions{}), layer));
  write_table(page, "TextEncoderOptions", "Also has the fields of LayerOptions.",
              without(option_rows(ef::TextEncoderOptions{}), layer));
  write_table(page, "SequenceRegressorOptions", "Also has the fields of LayerOptions.",
              without(option_rows(ef::SequenceRegressorOptions{}), layer));
  Rows attention = option_rows(ef::MultiHeadAttentionOptions{});
  std::erase_if(attention, [](const OptionRow& row) { return !row.owner_word.empty(); });
  write_table(page, "MultiHeadAttentionOptions", "Also has the fields of positions in LayerOptions.",
              attention);
  const ef::TrainingOptions training;
  write_table(page, "LoopOptions",
              "The training loop of any model. `--bf16` is short for `--precision bf16`.",
              option_rows(ef::LoopOptions{}), every, option_rows(training));
  write_table(page, "TrainingOptions", "Also has the fields of LoopOptions.",
              without(option_rows(training), training.loop), every);
  write_table(page, "SearchOptions",
              "Flags of `translator translate`, `evaluate`, `compare` and `calibrate`; `--n-best` works with "
              "`translate` only. Options that are not given have the values in the model folder.",
              option_rows(ef::SearchOptions{}), decodes);
  write_table(page, "Sampling", "Flags of `translator translate --sample`.", option_rows(ef::Sampling{}),
              decodes);
  write_table(page, "OutputOptions", "Flags of `translator translate` and `score`.",
              option_rows(ef::OutputOptions{}), every);
  write_table(page, "AlignmentOptions",
              "Flags of `translator translate` and `evaluate`, beside `--alignment`. A model that was "
              "trained with guided alignment has the trained layer and head as defaults.",
              option_rows(ef::AlignmentOptions{}), every);
  write_table(page, "BatchSearchOptions",
              "Flags of `translator translate`, `score`, `evaluate`, `compare` and `calibrate`.",
              option_rows(ef::BatchSearchOptions{}), every);
  write_table(page, "TranslatorOptions", "How a `Translator` shares a model between requests.",
              option_rows(ef::TranslatorOptions{}));
  write_table(page, "BatchingOptions",
              "How a corpus is split into training batches. `Trainer` sets these from its TrainingOptions.",
              option_rows(ef::BatchingOptions{}));
  ef::PrepareOptions prepare;
  prepare.nfc = true;  // false in a build without ICU
  prepare.tokenizer = "subword";
  write_table(page, "PrepareOptions",
              "Flags of `translator prepare`; see [Corpora](training/corpora.md#large-corpora).",
              option_rows(prepare), every);
  translator::CorpusOptions corpus;
  corpus.tokenizer = "subword";  // word in a build without SentencePiece
  write_table(page, "Data of translator train", "The data that a training reads.", option_rows(corpus),
              every);
  return page;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string expected = page();
  if (argc < 2) {
    std::cout << expected;
    return std::cout.flush() ? 0 : 1;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (found == expected) return 0;
  const auto lines = [](const std::string& text, std::size_t end) {
    return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
  };
  const auto differ = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first;
  std::cerr << argv[1] << " does not match the options from line "
            << lines(found, static_cast<std::size_t>(differ - found.begin()))
            << " on; CONTRIBUTING.md says how to regenerate it\n";
  return 1;
}
