#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "folders.hpp"
#include "program.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;

TEST_CASE("minimal: the example prints the sentence that it learned to copy") {
  const Ended ended = run("minimal", {});
  CHECK(ended.code == 0);
  CHECK(ended.out == "7 8 9 10 ");
  CHECK(ended.err.empty());
}

TEST_CASE("minimal: the example is the first program of the README") {
  const std::filesystem::path root = fixtures_folder() / ".." / "..";
  const std::string readme = read_file(root / "README.md"),
                    example = read_file(root / "examples/minimal/main.cpp");
  REQUIRE_FALSE(example.empty());
  CHECK(contains(readme, "```cpp\n" + example + "```"));
}

TEST_CASE("copy_task: a short training prints how many come out right, and no success is asked of it") {
  const Ended ended = run("copy_task", {"3"});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "copy: "));
  CHECK(contains(ended.out, "reverse: "));
  CHECK(contains(ended.out, " of 200)"));
}

TEST_CASE("regression: gradient descent finds the weights of least squares") {
  const Ended ended = run("regression", {});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "largest difference "));
  CHECK(std::stod(ended.out.substr(ended.out.find("difference ") + 11)) < 1e-6);
}

TEST_CASE("forecast: a short training prints both errors") {
  const Ended ended = run("forecast", {"2"});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "of repeating the last value: 0."));
}

TEST_CASE("char_lm: a short training prints eight texts and its loss, the same each time") {
  const Ended ended = run("char_lm", {"4", "1.0"});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "\n| "));
  CHECK(contains(ended.out, " nats per character\n"));
  CHECK(run("char_lm", {"4", "1.0"}).out == ended.out);
  CHECK(run("char_lm", {"4", "1.0", "2"}).out != ended.out);
}

TEST_CASE("classifier: a short training prints its answers and how many are right") {
  const Ended ended = run("classifier", {"3"});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, " % right ("));
  CHECK(contains(ended.out, " of 500)"));
}

TEST_CASE("conv_net and vision_transformer: a short training prints how many images are named correctly") {
  for (const char* name : {"conv_net", "vision_transformer"}) {
    CAPTURE(name);
    const Ended ended = run(name, {"2"});
    CHECK(ended.code == 0);
    CHECK(contains(ended.out, ", taken for a "));
    CHECK(contains(ended.out, " of 1000)"));
  }
}

TEST_CASE("own_training: a model of one's own learns, and both losses are printed") {
  const Ended ended = run("own_training", {});
  CHECK(ended.code == 0);
  double first = 0, last = 0;
  REQUIRE(std::sscanf(ended.out.c_str(), "first loss %lf, last loss %lf", &first, &last) == 2);
  CHECK(first > 0.4);
  CHECK(last < first / 3);
}

TEST_CASE("own_layer: a layer that is written once trains, and decodes with a cache") {
  const Ended ended = run("own_layer", {});
  CHECK(ended.code == 0);
  CHECK(ended.out == "the copy of 14 13 12 11: 14 13 12 11\n");
}

TEST_CASE("own_scores: a score rule of one's own acts, and its gradients are right") {
  const Ended ended = run("own_scores", {});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "gradients of the rule: right"));
  CHECK(contains(ended.out, "largest difference that the rule makes to an output: "));
  CHECK_FALSE(contains(ended.out, "output: 0.000"));
}

TEST_CASE("own_model: a model without attention learns, and is searched with a cache") {
  const Ended ended = run("own_model", {});
  CHECK(ended.code == 0);
  CHECK(ended.out == "after 5 6 7: 8 9 10 11\n");
}

TEST_CASE("own_search: logits processors of one's own change what is found") {
  const Ended ended = run("own_search", {});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "with them: 12"));
}

TEST_CASE("eigen: a network learns from Eigen's data") {
  const Ended ended = run("eigen", {});
  CHECK(ended.code == 0);
  double error = 1;
  REQUIRE(std::sscanf(ended.out.c_str(), "mean squared error %lf", &error) == 1);
  CHECK(error < 0.05);
}

TEST_CASE("physics: the parameters of the law are found") {
  const Ended ended = run("physics", {});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "found and true"));
  int found = 0;
  std::istringstream lines(ended.out);
  std::string name;
  double fitted = 0, wanted = 0;
  for (std::getline(lines, name); lines >> name >> fitted >> wanted; ++found) {
    CAPTURE(name);
    CHECK(std::abs(fitted - wanted) < 0.05);
  }
  CHECK(found == 4);
}

TEST_CASE("custom_op: the gradients of the op and the module are right") {
  const Ended ended = run("custom_op", {});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "gradients ok: worst error"));
  CHECK(contains(ended.out, "gate.weight"));
}

TEST_CASE("parity: an encoder agrees with PyTorch's, and another file is no fixture") {
  const std::filesystem::path examples = fixtures_folder() / ".." / ".." / "examples";
  const Ended ended = run("parity", {(examples / "parity/encoder.safetensors").string()});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "out.y"));
  CHECK(contains(ended.out, "grad.layers.1.linear2.weight"));
  CHECK(contains(ended.out, "grad_in.src"));
  CHECK(contains(ended.out, "28 of 28 tensors agree"));
  const Ended other = run("parity", {(examples / "parity/main.cpp").string()});
  CHECK(other.code == 1);
  CHECK(contains(other.err, "not a safetensors file"));
  const std::filesystem::path model = fixtures_folder() / "translation_model" / "model.safetensors";
  const Ended foreign = run("parity", {model.string()});
  CHECK(foreign.code == 1);
  CHECK(contains(foreign.err, "model.safetensors' is not a parity fixture: it has no metadata 'options'"));
}

TEST_CASE("every example says how it is called, and refuses what it does not understand") {
  const std::vector<std::vector<std::string>> wrong = {{"parity", "--fast"},
                                                       {"parity"},
                                                       {"char_lm", "abc"},
                                                       {"char_lm", "0"},
                                                       {"char_lm", "1", "-1"},
                                                       {"char_lm", "1", "nan"},
                                                       {"char_lm", "1", "1", "1", "1"},
                                                       {"classifier", "3x"},
                                                       {"classifier", "-5"},
                                                       {"conv_net", "0"},
                                                       {"vision_transformer", "3x"},
                                                       {"forecast", "--steps"},
                                                       {"copy_task", ""},
                                                       {"copy_task", "99999999999999999999"},
                                                       {"own_training", "0"},
                                                       {"translation", "--fast"},
                                                       {"translation", "folder", "0"},
                                                       {"custom_op", "7"},
                                                       {"physics", "x"}};
  for (const auto& words : wrong) {
    const std::string& name = words[0];
    CAPTURE(name);
    const Ended ended = run(name, {words.begin() + 1, words.end()});
    CHECK(ended.code == 2);
    CHECK(ended.out.empty());
    CHECK(contains(ended.err, "usage: " + name));
    const Ended help = run(name, {"--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, "usage: " + name));
    CHECK(help.err.empty());
  }
}

TEST_CASE("translation: a small one shows sentences, scores and a picture, and keeps a model for the tool") {
  const TemporaryFolder folder;
  const std::string model = (folder.path() / "model").string();
  const Ended ended = run("translation", {model, "300", "1"});
  CHECK(ended.code == 0);
  for (const char* part : {"English  ", "German  ", "reference  ", "(end)",
                           "exact match: ", "BLEU = ", "tok:13a", "translator translate --model "}) {
    CAPTURE(part);
    CHECK(contains(ended.out, part));
  }
  const Ended translated = run("translator", {"translate", "--model", model}, "We often sleep.\n");
  CHECK(translated.code == 0);
  CHECK(std::count(translated.out.begin(), translated.out.end(), '\n') == 1);
  const Ended again = run("translation", {model, "300", "1"});
  CHECK(again.code == 2);
  CHECK(contains(again.err, "exists already, expected one that does not"));
}

TEST_SUITE("long") {
  TEST_CASE("copy_task: all sequences come out right") {
    const Ended ended = run("copy_task", {});
    CHECK(ended.code == 0);
    CHECK(contains(ended.out, "copy: 100.0 % exact (200 of 200)"));
    CHECK(contains(ended.out, "reverse: 100.0 % exact (200 of 200)"));
  }

  TEST_CASE("char_lm: the tale is learned, and sampled almost word by word") {
    const Ended ended = run("char_lm", {"300", "0.2"});
    CHECK(ended.code == 0);
    CHECK(contains(ended.out, "the "));
  }

  TEST_CASE("classifier: at least 97 % of new sentences are right") {
    CHECK(run("classifier", {}).code == 0);
  }

  TEST_CASE("conv_net and vision_transformer: at least 95 % and 85 % of new images are named correctly") {
    CHECK(run("conv_net", {}).code == 0);
    CHECK(run("vision_transformer", {}).code == 0);
  }

  TEST_CASE("forecast: the model is far better than the naive forecast") {
    CHECK(run("forecast", {}).code == 0);
  }

  TEST_CASE("translation: at least 95 % of the sentences it has never seen come out exactly right") {
    const Ended ended = run("translation", {});
    CHECK(ended.code == 0);
    const std::string label = "exact match: ";
    const std::size_t at = ended.out.find(label);
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(ended.out.substr(at + label.size())) >= 95.0);
  }
}
