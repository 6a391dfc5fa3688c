#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "options/decoding_options.hpp"
#include "options/sentence_pairs.hpp"
#include "terminal/output_checks.hpp"
#include "translator/text/calibration.hpp"

namespace translator {

namespace {

struct CalibrateCommand : DecodingCommand {
  PairFiles files;
  bool save = false;
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The words of translations: their probabilities, and whether the references contain them, sentence by
/// sentence.
struct Outcomes {
  std::vector<std::vector<double>> probabilities, right;

  std::vector<double> words(const std::vector<std::vector<double>>& values) const {
    std::vector<double> all;
    for (const auto& sentence : values) all.insert(all.end(), sentence.begin(), sentence.end());
    return all;
  }

  void print(const char* title, const ef::ConfidenceScale& scale) const {
    std::vector<std::vector<double>> confidences = probabilities;
    std::vector<double> sentences, shares;
    for (std::size_t i = 0; i < confidences.size(); ++i) {
      for (double& p : confidences[i]) p = scale(p);
      sentences.push_back(mean(confidences[i]));
      shares.push_back(mean(right[i]));
    }
    std::printf("%s\nwords\n%s", title, ef::calibration(words(confidences), words(right)).str().c_str());
    std::printf("sentences (right: share of correct words in a sentence)\n%s\n",
                ef::calibration(sentences, shares).str().c_str());
  }
};

int calibrate(const CalibrateCommand& command) {
  command.set_threads();
  if (command.save && command.folders.size() > 1)
    throw ef::ValueError("calibrate", "--save works with one model only, but --model is given several times");
  const std::string& folder = command.adapter.empty() ? command.folders[0] : command.adapter;
  std::error_code ignored;
  if (command.save && std::filesystem::is_directory(folder, ignored))
    check_writable_file(confidence_file(folder));
  const DecodingModels models(command.folders, command.adapter, command.target_language);
  ef::TextTranslatorOptions options = command.for_models(models);
  const ef::ConfidenceScale scale = options.confidence;
  options.confidence = {};
  options.search.token_scores = true;
  const SentenceTranslator translator = sentence_translator(models, options);
  const auto [sources, references] = command.files.read("calibrate");
  Outcomes outcomes;
  const std::vector<ef::Translation> translations = translator.translate(sources);
  for (std::size_t i = 0; i < translations.size(); ++i) {
    if (translations[i].words.empty()) continue;
    std::vector<double>& probabilities = outcomes.probabilities.emplace_back();
    for (const ef::WordConfidence& word : translations[i].words) probabilities.push_back(word.confidence);
    outcomes.right.push_back(ef::right_words(translations[i].words, references[i]));
  }
  if (outcomes.right.empty())
    throw ef::IoError("calibrate", {"'", command.files.source,
                                    "' has no words, expected at least one sentence with words"});
  outcomes.print("probabilities", {});
  if (scale.slope != 1 || scale.offset != 0) {
    std::printf("slope %.4f, offset %.4f, from confidence.json\n", scale.slope, scale.offset);
    outcomes.print("confidences", scale);
  }
  if (command.save) {
    const ef::ConfidenceScale fitted =
        ef::fit_confidence(outcomes.words(outcomes.probabilities), outcomes.words(outcomes.right));
    outcomes.print("after the fit, on the same data", fitted);
    save_confidence(folder, fitted);
    std::printf("slope %.4f, offset %.4f: saved in '%s'\n", fitted.slope, fitted.offset,
                confidence_file(folder).string().c_str());
  }
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "calibrate",
      "Measures how well the confidences of words predict correct words, and fits them to data", calibrate);
  command->add_to(*sub);
  command->files.add_to(*sub);
  sub->add_flag("--save", command->save,
                "fit the confidences to this data and save the fit in the model folder (confidence.json)");
  sub->footer(
      "A word counts as right if the reference contains it. Fit on data that the model was not trained on, "
      "and measure on other data.");
}

}  // namespace translator
