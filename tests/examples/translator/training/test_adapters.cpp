#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/program.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

TEST_CASE("an adapter of an imported model is trained, goes on, translates, and is merged") {
  const TemporaryFolder folder;
  const auto in_folder = [&](const char* name) { return (folder.path() / name).string(); };
  const std::string base = in_folder("base"), adapter = in_folder("adapter"), merged = in_folder("merged");
  REQUIRE(run("translator", {"import", "--from", (fixtures_folder() / "checkpoints" / "hf_marian").string(),
                             "--model", base})
              .code == 0);
  const std::string lines = "the dog sees the red bird .\na tree\n";
  const std::string source = folder.write("source", lines).string(),
                    target = folder.write("target", "der Hund sieht den Vogel .\nein Baum\n").string();
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--source", source, "--target", target, "--threads", "1"});
    return run("translator", more);
  };
  const std::vector<std::string> lora = {"--lora-rank",    "4", "--lora-dropout",  "0.1",
                                         "--lora-targets", "*", "--adapter-names", "bart",
                                         "--warmup",       "0", "--learning-rate", "0.05"};
  const auto begin = [&](const std::string& place, const std::string& steps) {
    std::vector<std::string> more = {"--init-from", base, "--model", place, "--max-steps", steps};
    more.insert(more.end(), lora.begin(), lora.end());
    return train(more);
  };
  const Ended trained = begin(adapter, "3");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(contains(trained.out + trained.err, "million parameters; the model's own stay"));
  CHECK(contains(trained.out + trained.err, "--model " + base + " --adapter " + adapter));
  CHECK_FALSE(fs::exists(fs::path(adapter) / "model.safetensors"));
  CHECK(fs::file_size(fs::path(adapter) / "adapter_model.safetensors") <
        fs::file_size(fs::path(base) / "model.safetensors"));

  // It goes on with the bits of a training that was never cut.
  const std::string straight = in_folder("straight");
  REQUIRE(begin(straight, "6").code == 0);
  const Ended resumed = run("translator", {"train", "--resume", "--model", adapter, "--max-steps", "6"});
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  const auto factors = [](const std::string& place) {
    return read_file(fs::path(place) / "adapter_model.safetensors");
  };
  CHECK(factors(adapter) == factors(straight));
  CHECK(contains(run("translator", {"train", "--resume", "--model", adapter, "--lora-alpha", "3"}).err,
                 "--lora-alpha 3"));

  const Ended inspected = run("translator", {"inspect", "--parameters", "--model", adapter});
  CHECK_MESSAGE(inspected.code == 0, inspected.err);
  for (const std::string& part :
       {"adapter in " + adapter + " for the model in " + base, std::string("\n  rank                       "),
        std::string("training options"), std::string("\n  updates                    6\n"),
        std::string(".lora_A.weight ("), std::string("adapter_model.safetensors")}) {
    CAPTURE(part);
    CHECK(contains(inspected.out, part));
  }
  CHECK(contains(run("translator", {"inspect", "--verify", "--model", adapter}).err, "has no checksums"));

  const auto translate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"translate", "--max-length", "12", "--beam", "3"});
    const Ended ended = run("translator", more, lines);
    CHECK_MESSAGE(ended.code == 0, ended.err);
    return ended.out;
  };
  const std::string with = translate({"--model", base, "--adapter", adapter});
  CHECK(with != translate({"--model", base}));
  REQUIRE(run("translator", {"merge", "--model", base, "--adapter", adapter, "--output", merged}).code == 0);
  CHECK(translate({"--model", merged}) == with);
  CHECK(contains(run("translator", {"merge", "--model", base, "--adapter", adapter, "--output", merged}).err,
                 "exists already"));

  const auto error = [](const Ended& ended) {
    return ended.code == 1 ? ended.err : "code " + std::to_string(ended.code);
  };
  CHECK(contains(error(train({"--model", in_folder("new"), "--lora-rank", "2"})), "--init-from"));
  CHECK(contains(error(train({"--model", in_folder("new"), "--init-from", base, "--lora-rank", "2",
                              "--lora-targets", "fc1"})),
                 "the target 'fc1' matches no weight matrix"));
  CHECK(contains(error(begin(adapter, "3")), "already holds an adapter"));
  CHECK(contains(error(train({"--model", adapter, "--init-from", base, "--overwrite"})), "holds an adapter"));
  CHECK(contains(error(run("translator", {"translate", "--model", merged, "--adapter", adapter}, lines)),
                 "was trained on another model"));
  CHECK(run("translator", {"quantize", "--model", base, "--to", "int8"}).code == 0);
  CHECK(contains(
      error(run("translator", {"translate", "--model", base + "-int8", "--adapter", adapter}, lines)),
      "has int8 weights"));
}
