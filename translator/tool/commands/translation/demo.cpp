#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "commands.hpp"
#include "eigenformer/generation/text/text_translator.hpp"
#include "eigenformer/metrics/accuracy.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/train/trainer.hpp"
#include "grammar/grammar.hpp"
#include "model/confidence_file.hpp"
#include "model/model_folder.hpp"
#include "terminal/attention_map.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/terminal_progress.hpp"
#include "terminal/threads.hpp"

namespace translator {

namespace {

struct DemoCommand {
  ef::index_t pairs = 30000;
  ef::index_t test_pairs = 1000;
  ef::index_t epochs = 6;
  ef::index_t shown = 8;
  double max_seconds = 300;
  std::uint64_t seed = 1;
  ef::index_t threads = 0;
  std::string folder;  // empty: the model is not saved
  bool overwrite = false;

  void validate() const {
    const auto at_least = [](const char* name, ef::index_t value, ef::index_t least) {
      if (value >= least) return;
      throw ef::ValueError("demo", std::string(name) + " is " + std::to_string(value) +
                                       ", must be at least " + std::to_string(least));
    };
    at_least("pairs", pairs, 1);
    at_least("test_pairs", test_pairs, 1);
    at_least("show", shown, 0);
    if (!(max_seconds > 0))
      throw ef::ValueError("demo", "max_seconds is " + std::to_string(max_seconds) + ", must be positive");
    if (!folder.empty())
      require_new_model_folder("demo", folder, "--model", overwrite);
    else if (overwrite)
      throw ef::ValueError("demo", "--overwrite has no effect without --model: give both");
  }
};

/// The attention of each target word to each source word, in the decoder's last layer, averaged over the
/// heads; target words as the model would write them.
std::string attention_map(const ef::Seq2SeqTransformer<float>& model, const ef::TokenizerPair& tokenizers,
                          const std::string& source, const std::string& target) {
  const auto ctx = ef::Context<float>::inference();
  std::vector<std::int32_t> source_ids = tokenizers.source->encode(source);
  std::vector<std::int32_t> target_ids = tokenizers.target->encode(target);
  const auto words = [](const ef::Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
    std::vector<std::string> shown;
    for (const std::int32_t id : ids) shown.push_back(tokenizer.decode(std::span(&id, 1)));
    shown.emplace_back("(end)");
    return shown;
  };
  const std::vector<std::string> source_words = words(*tokenizers.source, source_ids);
  const std::vector<std::string> target_words = words(*tokenizers.target, target_ids);
  source_ids.push_back(ef::Vocabulary::end_id);
  const ef::AttentionMaps maps =
      ef::attention_maps(model, ctx, source_ids, target_ids, ef::Vocabulary::begin_id);
  const ef::Tensor<float>& heads = maps.memory.back();  // (H, Lt, Ls)
  const ef::index_t count = heads.dim(0), size = heads.dim(1) * heads.dim(2);
  ef::Tensor<float> mean = ef::Tensor<float>::zeros({heads.dim(1), heads.dim(2)});
  for (ef::index_t h = 0; h < count; ++h) {
    for (ef::index_t i = 0; i < size; ++i)
      mean.data()[i] += heads.data()[h * size + i] / static_cast<float>(count);
  }
  return draw_attention(mean, target_words, source_words);
}

/// Small enough to train in half a minute, large enough to learn the grammar.
ef::Seq2SeqOptions model_options(const ef::TokenizerPair& tokenizers) {
  return {
      .source_vocab_size = tokenizers.source->vocabulary_size(),
      .target_vocab_size = tokenizers.target->vocabulary_size(),
      .layer = {.d_model = 64, .num_heads = 4, .dim_feedforward = 256, .dropout = {0}, .norm_first = true},
      .encoder = {.num_layers = 2},
      .decoder = {.num_layers = 2},
      .tying = ef::Tying::target};
}

void show_translations(const ef::ParallelCorpus& corpus, const std::vector<std::string>& translations,
                       ef::index_t count) {
  std::printf("\nSentences that it has never seen:\n");
  for (std::size_t i = 0; i < std::min(translations.size(), static_cast<std::size_t>(count)); ++i) {
    std::printf("\n  English    %s\n  German     %s\n  reference  %s%s\n", corpus.source[i].c_str(),
                translations[i].c_str(), corpus.target[i].c_str(),
                translations[i] == corpus.target[i] ? "" : "   <- differs");
  }
}

/// The number of a correctly translated sentence of seven words, for a picture that fits a terminal; 0 if
/// there is none.
std::size_t good_example(const ef::ParallelCorpus& corpus, const std::vector<std::string>& translations) {
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const std::string& source = corpus.source[i];
    if (std::count(source.begin(), source.end(), ' ') == 6 && translations[i] == corpus.target[i]) return i;
  }
  return 0;
}

int demo(const DemoCommand& command) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  command.validate();
  set_threads(command.threads);

  const GrammarCorpus corpus = make_grammar_corpus(command.pairs, command.test_pairs, command.seed);
  const ef::TokenizerPair tokenizers = ef::train_tokenizers({.kind = "word", .joint = false}, corpus.train);
  const ef::EncodedCorpus training_set =
      ef::encode_corpus(corpus.train, *tokenizers.source, *tokenizers.target);
  ef::RandomGenerator rng(command.seed);
  ef::Seq2SeqTransformer<float> model(model_options(tokenizers), rng);
  std::printf(
      "Learning German from only %lld English sentences and their translations:\na Transformer of %lld "
      "parameters, vocabularies of %lld English and %lld German words and punctuation marks, %s.\n",
      static_cast<long long>(training_set.size()), static_cast<long long>(ef::count_parameters(model)),
      static_cast<long long>(tokenizers.source->vocabulary_size()),
      static_cast<long long>(tokenizers.target->vocabulary_size()),
      counted(ef::Runtime::instance().threads(), "thread").c_str());
  std::fflush(stdout);
  {
    TerminalProgress progress(5);
    ef::Trainer trainer(model, training_set, nullptr,
                        {.loop = {.epochs = command.epochs,
                                  .max_minutes = std::max(0.001, command.max_seconds - seconds()) / 60,
                                  .validate_every = 0,
                                  .seed = command.seed},
                         .batch_tokens = 800,
                         .learning_rate = 5e-3,
                         .warmup = 100,
                         .schedule = ef::ScheduleKind::cosine,
                         .label_smoothing = 0},
                        progress);
    if (trainer.run() == ef::TrainingEnd::max_minutes)
      progress.say(format("the time limit ended the training after %s: give it more time with --max-seconds",
                          counted(trainer.step(), "update").c_str()));
  }
  const double trained = seconds();

  ef::ModelDescription description;
  description.model = model.options;
  description.model.max_length = 64;
  const ef::TextTranslator translator(model, tokenizers, description,
                                      {.search = {.beam_size = 1, .max_length = 40}});
  std::vector<std::string> translations;
  for (auto& translation : translator.translate(corpus.held_out.source))
    translations.push_back(std::move(translation.text));
  show_translations(corpus.held_out, translations, command.shown);
  const std::size_t example = good_example(corpus.held_out, translations);
  std::printf(
      "\nWhere the decoder looks (last layer, mean of its heads; rows: German, columns: English):\n\n%s",
      attention_map(model, tokenizers, corpus.held_out.source[example], translations[example]).c_str());

  const ef::Accuracy exact = ef::exact_match(translations, corpus.held_out.target);
  std::printf(
      "\nOn %zu sentences that it was not trained on:\nexact match: %.1f %%\n%s\n%s\n%.1f s in total, %.1f s "
      "of them training\n",
      translations.size(), 100 * exact.rate(),
      ef::corpus_bleu(translations, corpus.held_out.target).str().c_str(), ef::bleu_signature().c_str(),
      seconds(), trained);
  if (!command.folder.empty()) {
    ef::save_model_folder(command.folder, model, tokenizers, {{"corpus", "translator demo"}},
                          ef::WeightFormat::float32, description.text);
    remove_confidence(command.folder);
    std::printf("translate with: translator translate --model %s\n", command.folder.c_str());
  } else {
    std::printf("the model was not saved; --model FOLDER saves it\n");
  }
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("demo", "Trains on built-in sentences for about a minute and shows translations");
  auto command = std::make_shared<DemoCommand>();
  sub->add_option("--pairs", command->pairs, "sentence pairs to train on")->capture_default_str();
  sub->add_option("--test-pairs", command->test_pairs, "sentence pairs to test on")->capture_default_str();
  sub->add_option("--epochs", command->epochs, "maximum passes over the training data")
      ->capture_default_str();
  sub->add_option("--max-seconds", command->max_seconds, "time limit of the training in seconds")
      ->capture_default_str();
  sub->add_option("--show", command->shown, "number of translations to show")->capture_default_str();
  sub->add_option("--seed", command->seed, "seed of sentences and weights")->capture_default_str();
  sub->add_option("--threads", command->threads, "number of threads; 0: one per core")->capture_default_str();
  sub->add_option("--model", command->folder, "model folder to write; not given: the model is not saved");
  sub->add_flag("--overwrite", command->overwrite, "replace an existing model in the folder");
  sub->callback([&run, command] { run = [command] { return demo(*command); }; });
}

}  // namespace translator
