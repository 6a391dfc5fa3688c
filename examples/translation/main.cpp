/// Learns to translate English into German from a small embedded language, in under a minute: sentences of a
/// bilingual grammar (grammar/), a Transformer of 280,000 parameters, greedy decoding. Shows translations of
/// sentences that it has never seen, where the decoder looks, and BLEU. FOLDER keeps the model, which the
/// tool `translator` can use.
///
///     translation [FOLDER [PAIRS [EPOCHS]]]

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/io.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "eigenformer/train/reporting/console_sink.hpp"
#include "eigenformer/train/trainer.hpp"
#include "grammar/grammar.hpp"

namespace ef = eigenformer;

namespace {

constexpr ef::index_t test_pairs = 1000, shown = 5;

/// Columns that a word takes on a terminal: one for each character.
std::size_t columns(const std::string& word) { return ef::split_code_points(word).size(); }

/// The attention of each word of the translation to each source word, in the decoder's last layer, averaged
/// over its heads, as shades.
std::string attention_picture(const ef::Seq2SeqTransformer<float>& model, const ef::TokenizerPair& tokenizers,
                              const std::string& source, const std::string& target) {
  std::vector<std::int32_t> source_ids = tokenizers.source->encode(source);
  const std::vector<std::int32_t> target_ids = tokenizers.target->encode(target);
  const auto words = [](const ef::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    std::vector<std::string> all;
    for (const std::int32_t id : ids) all.push_back(tokenizer.decode({&id, 1}));
    all.emplace_back("(end)");
    return all;
  };
  const std::vector<std::string> across = words(*tokenizers.source, source_ids);
  const std::vector<std::string> down = words(*tokenizers.target, target_ids);
  source_ids.push_back(ef::SpecialIds::end);
  const ef::Tensor<float> heads =  // (heads, words of the translation, words of the source)
      ef::attention_maps(model, ef::Context<float>::inference(), source_ids, target_ids,
                         ef::SpecialIds::begin)
          .memory.back();
  const auto mean = [&](std::size_t i, std::size_t j) {
    float sum = 0;
    for (ef::index_t h = 0; h < heads.dim(0); ++h)
      sum += heads.at({h, static_cast<ef::index_t>(i), static_cast<ef::index_t>(j)});
    return sum / static_cast<float>(heads.dim(0));
  };

  constexpr std::array shades = {" ", "░", "▒", "▓", "█"};
  std::size_t margin = 0;
  for (const std::string& word : down) margin = std::max(margin, columns(word));
  std::string picture(margin, ' ');
  for (const std::string& word : across) picture += "  " + word;
  for (std::size_t i = 0; i < down.size(); ++i) {
    picture += '\n' + std::string(margin - columns(down[i]), ' ') + down[i];
    for (std::size_t j = 0; j < across.size(); ++j) {
      const float w = mean(i, j);
      const std::size_t shade = w < 0.05f ? 0 : w < 0.2f ? 1 : w < 0.45f ? 2 : w < 0.7f ? 3 : 4;
      picture += "  ";
      for (std::size_t k = 0; k < columns(across[j]); ++k) picture += shades[shade];
    }
  }
  return picture + '\n';
}

int learn(const example::Arguments& arguments) {
  const std::string folder = arguments.text(0);
  const ef::index_t pairs = arguments.whole(1, 30000), epochs = arguments.whole(2, 6);
  if (!folder.empty() && std::filesystem::exists(folder))
    throw example::UsageError("FOLDER '" + folder + "' exists already, expected one that does not");
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };

  // Text, its vocabularies, and the ids of its words.
  const toy::GrammarCorpus corpus = toy::make_grammar_corpus(pairs, test_pairs, 1);
  const ef::TokenizerPair tokenizers = ef::train_tokenizers({.kind = "word", .joint = false}, corpus.train);
  const ef::EncodedCorpus ids = ef::encode_corpus(corpus.train, tokenizers);

  // A model that is small enough to learn in under a minute, and large enough for the grammar.
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model(
      {.source_vocab_size = tokenizers.source->vocabulary_size(),
       .target_vocab_size = tokenizers.target->vocabulary_size(),
       .layer = {.d_model = 64, .num_heads = 4, .dim_feedforward = 256, .dropout = {0}, .norm_first = true},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2},
       .max_length = 64,
       .tying = ef::Tying::target},
      rng);
  std::printf(
      "Learning German from only %lld English sentences and their translations:\n"
      "%lld parameters, vocabularies of %lld English and %lld German words and punctuation marks.\n",
      static_cast<long long>(ids.size()), static_cast<long long>(ef::count_parameters(model)),
      static_cast<long long>(tokenizers.source->vocabulary_size()),
      static_cast<long long>(tokenizers.target->vocabulary_size()));
  std::fflush(stdout);

  ef::ConsoleSink console(std::clog, example::terminal());
  ef::Trainer trainer(model, ids, nullptr,
                      {.loop = {.epochs = epochs, .validate_every = 0},
                       .batch_tokens = 800,
                       .learning_rate = 5e-3,
                       .warmup = 100,
                       .schedule = ef::ScheduleKind::cosine,
                       .label_smoothing = 0},
                      console);
  trainer.run();
  const double trained = seconds();

  const std::vector<std::string>& sources = corpus.held_out.source;
  const std::vector<std::string>& references = corpus.held_out.target;
  const std::vector<std::string> translations =
      ef::translate(model, tokenizers, sources, {.beam_size = 1, .max_length = 40});
  std::printf("\nSentences that it has never seen:\n");
  for (std::size_t i = 0; i < shown; ++i)
    std::printf("\n  English    %s\n  German     %s\n  reference  %s%s\n", sources[i].c_str(),
                translations[i].c_str(), references[i].c_str(),
                translations[i] == references[i] ? "" : "   <- differs");

  std::size_t example = 0;  // a correct sentence of seven words, which fits a terminal
  for (std::size_t i = sources.size(); i-- > 0;)
    if (std::count(sources[i].begin(), sources[i].end(), ' ') == 6 && translations[i] == references[i])
      example = i;
  std::printf("\nWhere the decoder looks (last layer; rows: German, columns: English):\n\n%s",
              attention_picture(model, tokenizers, sources[example], translations[example]).c_str());
  const ef::BleuScore bleu = ef::corpus_bleu(translations, references);
  std::printf(
      "\nOn %zu sentences that it was not trained on:\nexact match: %.1f %%\n%s\n%s\n"
      "%.1f s in total, %.1f s of them training\n",
      sources.size(), 100 * ef::exact_match(translations, references).rate(), bleu.str().c_str(),
      bleu.signature().c_str(), seconds(), trained);

  if (folder.empty()) {
    std::printf("The model was not saved; give a folder: translation FOLDER\n");
    return 0;
  }
  ef::ModelDescription description{.model = model.options};
  ef::save_model_folder(folder, model, tokenizers, {{"corpus", "examples/translation"}},
                        ef::WeightFormat::float32, description.text);
  std::printf(
      "\nThe model is in %s. Next, with the tool (cmake --build build/release --target translator):\n"
      "  echo \"I must work today.\" | build/release/bin/translator translate --model %s\n"
      "  build/release/bin/translator serve --model en-de=%s\n"
      "  build/release/bin/translator train --source a.en --target a.de --model mine --minutes 30\n",
      folder.c_str(), folder.c_str(), folder.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"FOLDER", "PAIRS", "EPOCHS"}, learn); }
