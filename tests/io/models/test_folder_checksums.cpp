#include "eigenformer/io/models/folder_checksums.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

struct Saved {
  TemporaryFolder scratch;
  fs::path folder = scratch.path() / "m";
  std::vector<std::string> files = {"options.json", "model.safetensors", "source.vocab", "target.vocab"};

  Saved() {
    ParallelCorpus corpus;
    corpus.source = {"the dog sleeps", "a cat sees the dog"};
    corpus.target = {"der Hund schläft", "eine Katze sieht"};
    const auto tokenizers =
        train_tokenizers({.kind = "word", .vocabulary_size = 100, .joint = false}, corpus);
    RandomGenerator rng(1);
    const LanguageModel<float> model({.vocab_size = tokenizers.source->vocabulary_size(),
                                      .num_layers = 1,
                                      .layer = {.d_model = 4, .num_heads = 2, .dim_feedforward = 6}},
                                     rng);
    save_model_folder(folder, model, tokenizers, {{"note", "options.json"}, {"rate", 0.1}});
  }
  std::string failure() const {
    return message_of<IoError>([&] { verify_model_folder(folder); });
  }
};

}  // namespace

TEST_CASE("a flipped byte, a missing end and a missing file are reported by the file's name") {
  const Saved saved;
  CHECK(verify_model_folder(saved.folder) == 4);
  for (const std::string& name : saved.files) {
    CAPTURE(name);
    const std::string bytes = detail::read_text_file(saved.folder / name);
    for (std::size_t at = 0; at < bytes.size(); at += name == "options.json" ? 1 : bytes.size() / 50 + 1) {
      CAPTURE(at);
      for (const char flip : {'\1', '\x20', '\x80'}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ flip);
        saved.scratch.write("m/" + name, damaged);
        CHECK(contains(saved.failure(), name));
      }
    }
    saved.scratch.write("m/" + name, bytes.substr(0, bytes.size() - 1));
    CHECK(contains(saved.failure(), name));
    fs::remove(saved.folder / name);
    CHECK(contains(saved.failure(), name));
    saved.scratch.write("m/" + name, bytes);
    CHECK(verify_model_folder(saved.folder) == 4);
  }
}

TEST_CASE("all damaged files are reported together, and other files are not looked at") {
  const Saved saved;
  saved.scratch.write("m/notes.txt", "mine");
  CHECK(verify_model_folder(saved.folder) == 4);
  saved.scratch.write("m/source.vocab", "a\n");
  saved.scratch.write("m/target.vocab", "b\n");
  const std::string message = saved.failure();
  CHECK(contains(message, "source.vocab has other bytes than were saved"));
  CHECK(contains(message, "target.vocab"));
  CHECK_FALSE(contains(message, "model.safetensors"));
}

TEST_CASE("a folder without checksums loads, and says that it cannot be verified") {
  const fs::path old = testing::fixtures_folder() / "translation_model";
  CHECK(contains(message_of<IoError>([&] { verify_model_folder(old); }), "options.json has no checksums"));
  // What was edited loads as before.
  const Saved saved;
  nlohmann::json json = nlohmann::json::parse(detail::read_text_file(saved.folder / "options.json"));
  json["training"]["note"] = "edited";
  saved.scratch.write("m/options.json", json.dump(2) + "\n");
  CHECK(contains(saved.failure(), "options.json is not as it was saved"));
  CHECK(load_model_folder<LanguageModel<float>>(saved.folder).description.training.at("note") == "edited");
}

TEST_CASE("crafted checksums are refused") {
  const Saved saved;
  for (const char* sums : {"1", "{}", "{\"options.json\": 1}", "{\"a\": 1}"}) {
    CAPTURE(sums);
    nlohmann::json json = nlohmann::json::parse(detail::read_text_file(saved.folder / "options.json"));
    json["checksums"] = nlohmann::json::parse(sums);
    saved.scratch.write("m/options.json", json.dump(2) + "\n");
    CHECK(contains(saved.failure(), "options.json is not as it was saved"));
  }
  // A right hash of wrong entries.
  nlohmann::json json = nlohmann::json::parse(detail::read_text_file(saved.folder / "options.json"));
  json["checksums"] = {
      {"options.json", {{"hash64", detail::hash_text(0)}}}, {"../m", 1}, {"source.vocab", 2}};
  json["checksums"]["options.json"]["hash64"] = detail::hash_text(detail::Hash64::of(json.dump(2) + "\n"));
  saved.scratch.write("m/options.json", json.dump(2) + "\n");
  CHECK(contains(saved.failure(), "../m is missing; source.vocab has other bytes"));
}

TEST_CASE("a resumed training stores its options beside the model that is there") {
  const Saved saved;
  const std::string weights = detail::read_file(saved.folder / "model.safetensors");
  const nlohmann::json before = nlohmann::json::parse(detail::read_file(saved.folder / "options.json"));
  const auto store = [&](const nlohmann::json& training) {
    FolderTransaction save(saved.folder);
    detail::stage_training_options(save, saved.folder, training);
    save.commit();
  };
  store({{"max_steps", 40}});
  verify_model_folder(saved.folder);
  const auto description = read_model_description<LanguageModel<float>>(saved.folder);
  CHECK(description.training == nlohmann::json{{"max_steps", 40}});
  nlohmann::json after = nlohmann::json::parse(detail::read_file(saved.folder / "options.json"));
  CHECK(after.at("checksums").at("model.safetensors") == before.at("checksums").at("model.safetensors"));
  for (const char* changed : {"training", "checksums"}) after[changed] = before.at(changed);
  CHECK(after == before);
  CHECK(detail::read_file(saved.folder / "model.safetensors") == weights);

  // The same options once more: the file stays as it is, byte by byte, also one without checksums.
  after.erase("checksums");
  const std::string compact = after.dump();
  detail::write_file(saved.folder / "options.json", compact);
  store(after.at("training"));
  CHECK(detail::read_file(saved.folder / "options.json") == compact);
  store({{"max_steps", 41}});
  CHECK_FALSE(nlohmann::json::parse(detail::read_file(saved.folder / "options.json")).contains("checksums"));
  detail::write_file(saved.folder / "options.json", compact.substr(1));
  CHECK(contains(message_of<IoError>([&] { store({{"max_steps", 42}}); }), "truncated or not JSON"));
}
