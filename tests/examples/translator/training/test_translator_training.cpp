#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "../../../../translator/tool/curves/svg_chart.hpp"
#include "examples/translator/translator_corpus.hpp"
#include "folders.hpp"
#include "test_tools.hpp"
#include "translator/training/training_lock.hpp"
#include "translator/training/training_log.hpp"

using namespace eigenformer::testing;
using eigenformer::index_t;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> with_validation(const TinyCorpus& corpus, std::vector<std::string> more) {
  for (const std::string& word :
       {std::string("--valid-source"), corpus.source, std::string("--valid-target"), corpus.target})
    more.push_back(word);
  return corpus.train(more);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("train: a plan keeps what is given, and --plan writes nothing") {
  const TinyCorpus corpus;
  const Ended planned = run("translator", corpus.train({"--plan", "--max-steps", "50"}));
  CAPTURE(planned.err);
  REQUIRE(planned.code == 0);
  CHECK(!fs::exists(corpus.model));
  for (const char* part :
       {"corpus: 60 pairs (", "model: d_model 16, 1 + 1 layers, 2 heads, feed-forward 32, pre-norm",
        "about 50 updates of 120 target tokens", "schedule wsd", "expected: validation loss ",
        "memory: at most about ", "warning: 50 updates are too few"})
    CHECK(contains(planned.err, part));

  const std::vector<std::string> call =
      corpus.train({"--max-steps", "4", "--pre-norm=false", "--schedule", "cosine", "--validate-every", "3"});
  const Ended trained = run("translator", call);
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const nlohmann::json options = options_json(corpus.model);
  CHECK(options.at("model").at("norm_first") == false);
  CHECK(options.at("training").at("schedule") == "cosine");
  CHECK(options.at("training").at("validate_every") == 3);
  CHECK(options.at("training").at("max_steps") == 4);

  const Ended refused = run("translator", corpus.train({"--resume", "--plan"}));
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "--plan is for new models"));
}

TEST_CASE("train: a process stays within --memory-limit, which its batches would exceed") {
  TinyCorpus corpus;
  // 90 long pairs, all in one update.
  const auto long_lines = [](const std::string& sentences, std::size_t shift) {
    const std::vector<std::string> lines = lines_of(sentences);
    std::string text;
    for (std::size_t i = 0; i < 90; ++i) {
      for (std::size_t j = 0; j < 24; ++j) text += lines[(i * shift + j) % lines.size()] + ' ';
      text += '\n';
    }
    return text;
  };
  corpus.source = corpus.folder.write("long.en", long_lines(corpus.english(), 7)).string();
  corpus.target = corpus.folder.write("long.de", long_lines(corpus.german(), 7)).string();
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto peak = [&](const std::vector<std::string>& more) {
    std::vector<std::string> options = {"--max-steps", "2", "--batch-tokens", "16384", "--d-model",  "64",
                                        "--layers",    "2", "--ff",           "256",   "--overwrite"};
    options.insert(options.end(), more.begin(), more.end());
    const Ended trained = run("translator", corpus.train(options));
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);
    CHECK(contains(trained.err, "memory: batches of ") == !more.empty());
    return trained.peak_bytes;
  };
  CHECK(peak({}) > 160 * mib);
  CHECK(peak({"--memory-limit", "120M"}) <= 120 * mib);

  const Ended refused =
      run("translator", corpus.train({"--max-steps", "2", "--memory-limit", "8M", "--overwrite"}));
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "training within 8 MiB of memory is not possible: it takes about "));
}

TEST_CASE("train: --minutes is the time of the command, and the rest of the options are planned for it") {
  const TinyCorpus corpus;
  const Ended trained = run("translator", corpus.train({"--minutes", "0.1"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, " tokens/s in "));
  CHECK(contains(trained.err, "; ends at "));
  CHECK(contains(trained.err, "time limit reached after "));
  CHECK(options_json(corpus.model).at("training").at("max_minutes") == 0.1);
}

TEST_CASE("train: validations of a plan predict the loss at the end, those of a resumed training do not") {
  const TinyCorpus corpus;
  // Enough text for the law to expect more than the entropy of the words.
  std::string english, german;
  for (int k = 0; k < 12; ++k) {
    english += corpus.english();
    german += corpus.german();
  }
  const std::string source = corpus.folder.write("many.en", english).string();
  const std::string target = corpus.folder.write("many.de", german).string();
  const Ended trained =
      run("translator", with_validation(corpus, {"--source", source, "--target", target, "--max-steps", "80",
                                                 "--validate-every", "20", "--d-model", "64", "--ff", "256",
                                                 "--batch-tokens", "1000", "--learning-rate", "5e-4"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(count(trained.err, "validation after step ") == 4);
  // At the first the law knows only the entropy, and the last follows the decay.
  CHECK(count(trained.err, "  expected at the end: ") == 2);
  const Ended resumed =
      run("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "100"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(contains(resumed.err, "validation after step 100"));
  CHECK_FALSE(contains(resumed.err, "expected at the end"));
}

TEST_CASE("train: the vocabulary's size is chosen for the text, or given, and a resume may repeat it") {
  const TinyCorpus corpus;
  for (const std::string size : {"0", "50"}) {
    CAPTURE(size);
    std::vector<std::string> call = corpus.train({"--max-steps", "2", "--vocab-size", size, "--overwrite"});
    const Ended trained = run("translator", call);
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);
    CHECK(options_json(corpus.model).at("training").at("vocab_size") == std::stoi(size));
    call = {"train", "--resume", "--model", corpus.model, "--max-steps", "4", "--vocab-size", size};
    CHECK(run("translator", call).code == 0);
  }
}

TEST_CASE("train: BLEU and chrF beside the loss, a sentence each time, a log, and curves of it") {
  const TinyCorpus corpus;
  const std::vector<std::string> call = with_validation(
      corpus, {"--max-steps", "40", "--validate-every", "20", "--report-every", "5", "--validate-with",
               "loss,chrf", "--validate-by", "bleu", "--validate-sample", "9"});
  const Ended trained = run("translator", call);
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(count(trained.err, "validation after step ") == 2);
  CHECK(contains(trained.err, "validation after step 40, epoch "));
  for (const char* part : {" perplexity ", " BLEU ", " chrF ", "best validation BLEU "})
    CHECK(contains(trained.err, part));
  CHECK(count(trained.err, "\n  source     ") == 6);
  CHECK(count(trained.err, "\n  output     ") == 6);
  CHECK(!fs::exists(corpus.model + "/training/lock"));

  const auto log = eigenformer::read_training_log(corpus.model + "/training/training.jsonl").lines;
  REQUIRE(log.size() >= 12);
  CHECK(log.front().at("settings").at("validate_by") == "bleu");
  CHECK(log.front().at("model").at("d_model") == 16);
  CHECK(log.front().at("pairs") == 60);
  CHECK(log.back().at("reason") == "max_steps");
  const auto validation =
      std::find_if(log.begin(), log.end(), [](const auto& line) { return line.at("event") == "validation"; });
  REQUIRE(validation != log.end());
  CHECK(validation->at("by") == "bleu");
  CHECK(validation->at("measures").size() == 3);
  CHECK(contains(corpus.english(), validation->at("samples").at(0).at("source").template get<std::string>()));

  const Ended other = run("translator", corpus.train({"--resume", "--validate-by", "loss"}));
  CHECK(other.code == 1);
  CHECK(contains(other.err, "--validate-by"));

  const std::string picture = (corpus.folder.path() / "curves.svg").string();
  for (const char* x : {"steps", "minutes", "tokens"}) {
    const Ended drawn = run("translator", {"curves", corpus.model, corpus.model + "/training/training.jsonl",
                                           "--output", picture, "--x", x});
    CAPTURE(drawn.err);
    CHECK(drawn.code == 0);
    const std::string svg = read_file(picture);
    CHECK(count(svg, "<polyline") == 10);  // two runs: losses of both kinds, BLEU, chrF, rates
    CHECK(contains(svg, std::string(x) == "steps"     ? ">updates<"
                        : std::string(x) == "minutes" ? ">minutes<"
                                                      : ">target tokens<"));
    CHECK(contains(svg, ">" + corpus.model + "<"));
    CHECK(!contains(svg, "nan"));
    CHECK(!contains(svg, "inf"));
  }
  CHECK(contains(run("translator", {"curves", corpus.model, "--output", picture, "--x", "days"}).err,
                 "'days', expected steps, minutes or tokens"));
  CHECK(contains(run("translator", {"curves", corpus.folder.path().string(), "--output", picture}).err,
                 "training.jsonl' does not exist"));
}

TEST_CASE("train: a second training in the folder is refused, and translating there is not") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2"})).code == 0);
  const eigenformer::TrainingLock lock(corpus.model);
  for (const char* way : {"--resume", "--overwrite"}) {
    const Ended second = run("translator", corpus.train({"--max-steps", "3", way}));
    CHECK(second.code == 1);
    CHECK(contains(second.err, "is in use by the training of process " + std::to_string(::getpid())));
  }
  CHECK(run("translator", {"translate", "--model", corpus.model}, "I see the dog.\n").code == 0);
}

TEST_CASE("train: the log goes on after an interruption, as the training does") {
  const TinyCorpus corpus;
  const std::vector<std::string> more = {"--max-steps",      "3000", "--report-every", "10",
                                         "--validate-every", "50"};
  Program first("translator", with_validation(corpus, more));
  REQUIRE(first.says("validation after step 50,"));
  first.signal(SIGINT);
  REQUIRE(first.wait().code == 130);
  const auto path = eigenformer::training_log_file(corpus.model);
  const auto before = eigenformer::read_training_log(path).lines;
  CHECK(before.back().at("reason") == "interrupted");
  const auto step = before.back().at("step").get<index_t>();
  const Ended resumed =
      run("translator", corpus.train({"--resume", "--max-steps", std::to_string(step + 30)}));
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  const auto after = eigenformer::read_training_log(path).lines;
  REQUIRE(after.size() > before.size() + 3);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i] == before[i]);
  CHECK(after[before.size()].at("event") == "start");
  CHECK(after[before.size()].at("resumed") == true);
  CHECK(after[before.size()].at("seconds").get<double>() >= before.back().at("seconds").get<double>());
  index_t last = 0;
  for (const auto& line : after) {
    CHECK(line.at("step").get<index_t>() >= last);
    last = line.at("step").get<index_t>();
  }
}

TEST_CASE(
    "train: with wsd a resumed training equals one straight run, with cosine it says that it does not") {
  const TinyCorpus corpus;
  const auto train = [&](const char* name, const char* schedule, const char* steps, bool resume) {
    const std::string folder = (corpus.folder / name).string();
    std::vector<std::string> words =
        resume
            ? std::vector<std::string>{"train", "--resume", "--model", folder, "--threads", "1"}
            : with_validation(corpus, {"--model", folder, "--schedule", schedule, "--validate-every", "4"});
    words.insert(words.end(), {"--max-steps", steps});
    const Ended ended = run("translator", words);
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    return ended.err;
  };
  const auto same = [&](const char* a, const char* b, const char* file) {
    return read_file(corpus.folder / a / file) == read_file(corpus.folder / b / file);
  };
  train("whole", "wsd", "20", false);
  CHECK(contains(train("parts", "wsd", "10", false),
                 "the learning rate decays until the end: about 2 updates, "));
  CHECK_FALSE(same("whole", "parts", "training/last.safetensors"));
  const std::string resumed = train("parts", "", "20", true);
  CHECK(contains(resumed, "resuming after step 8, before the learning rate decayed"));
  CHECK_FALSE(contains(resumed, "will differ"));
  for (const char* file :
       {"training/last.safetensors", "training/before_decay.safetensors", "model.safetensors"}) {
    CAPTURE(file);
    CHECK(same("whole", "parts", file));
  }
  train("cosine", "cosine", "30", false);
  CHECK(contains(train("cosine", "", "40", true), "was planned for 30 updates and now for 40"));
}

TEST_CASE("curves: round ticks, few points, names as XML has them") {
  const translator::Scale scale{0, 970, 0, 1};
  CHECK(scale.ticks(5) == std::vector<double>{0, 200, 400, 600, 800});
  CHECK(translator::Scale{1.93, 6.1, 0, 1}.ticks(5) == std::vector<double>{2, 3, 4, 5, 6});
  CHECK(translator::tick_text(12000) == "12,000");
  CHECK(translator::tick_text(2.5) == "2.5");
  CHECK(translator::tick_text(0.0005) == "0.0005");
  CHECK(translator::tick_text(2.5e6) == "2.5 M");
  CHECK(translator::xml_text("a<b & \"c\">") == "a&lt;b &amp; &quot;c&quot;&gt;");
  translator::Curve curve;
  for (int i = 0; i < 10; ++i) curve.push_back({static_cast<double>(i), static_cast<double>(2 * i)});
  const translator::Curve few = translator::thinned(curve, 4);
  REQUIRE(few.size() == 4);
  CHECK(few[0].x == 1);
  CHECK(few[0].y == 2);
  CHECK(few[3].x == 9);
  CHECK(translator::thinned(curve, 10).size() == 10);
}
