#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/program.hpp"
#include "temporary_folder.hpp"

namespace eigenformer::testing {

/// The options.json of a model folder.
inline nlohmann::json options_json(const std::string& folder) {
  return nlohmann::json::parse(read_file(std::filesystem::path(folder) / "options.json"));
}

/// Sentences with one right translation each, in two files, and the options of a model that learns them in a
/// second.
class TinyCorpus {
 public:
  TinyCorpus() {
    const std::vector<std::vector<std::string>> who = {
        {"I", "Ich"}, {"You", "Du"}, {"We", "Wir"}, {"They", "Sie"}};
    const std::vector<std::vector<std::string>> verbs = {{"see", "sehe", "siehst", "sehen", "sehen"},
                                                         {"look for", "suche", "suchst", "suchen", "suchen"},
                                                         {"paint", "male", "malst", "malen", "malen"}};
    const std::vector<std::vector<std::string>> what = {{"the dog", "den Hund"},
                                                        {"the cat", "die Katze"},
                                                        {"the house", "das Haus"},
                                                        {"the bread", "das Brot"},
                                                        {"the lamp", "die Lampe"}};
    for (std::size_t w = 0; w < who.size(); ++w) {
      for (const auto& verb : verbs) {
        for (const auto& object : what) {
          english_ += who[w][0] + " " + verb[0] + " " + object[0] + ".\n";
          german_ += who[w][1] + " " + verb[w + 1] + " " + object[1] + ".\n";
        }
      }
    }
    source = folder.write("train.en", english_).string();
    target = folder.write("train.de", german_).string();
    model = (folder.path() / "model").string();
  }

  const std::string& english() const { return english_; }
  const std::string& german() const { return german_; }

  /// The arguments of a small training, with more at the end: what is among these replaces its own.
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const {
    const std::vector<std::string> own = {
        "--source",  source, "--target",       target, "--model",         model,  "--tokenizer", "word",
        "--d-model", "16",   "--heads",        "2",    "--layers",        "1",    "--ff",        "32",
        "--dropout", "0.05", "--batch-tokens", "120",  "--learning-rate", "0.01", "--warmup",    "20",
        "--threads", "1"};
    std::vector<std::string> all = {"train"};
    for (std::size_t i = 0; i < own.size(); i += 2) {
      if (std::find(more.begin(), more.end(), own[i]) == more.end())
        all.insert(all.end(), {own[i], own[i + 1]});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder;
  std::string source, target, model;

 private:
  std::string english_, german_;
};

}  // namespace eigenformer::testing
