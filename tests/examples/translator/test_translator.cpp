#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "examples/translator/translator_corpus.hpp"
#include "folders.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

TEST_CASE("train, translate, evaluate, inspect") {
  const TinyCorpus corpus;
  const Ended trained = run("translator", corpus.train({"--epochs", "120", "--dropout", "0",
                                                        "--label-smoothing", "0", "--validate-every", "0"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, "training data: 60 pairs read, 60 kept"));
  CHECK(contains(trained.err, "too few pairs to hold some out"));
  CHECK(contains(trained.err, "perplexity "));
  CHECK(contains(trained.err, "  elapsed 0:0"));
  CHECK(contains(trained.err, "  ETA "));
  CHECK(contains(trained.err, " tokens/s  lr "));
  CHECK(contains(trained.err, "all epochs finished after"));
  CHECK_FALSE(contains(trained.err, "\r"));  // not a terminal: plain lines

  // One line out for each line in: empty ones, odd ones, one without an end.
  const Ended translated = run("translator", {"translate", "--model", corpus.model},
                               "\xEF\xBB\xBFWe see the cat.\r\n\n   \t \nqwertz \x01 \xE2\x80\xA8 "
                               "\xF0\x9F\x90\xB6\nI paint the lamp.");
  CAPTURE(translated.err);
  CHECK(translated.code == 0);
  const std::vector<std::string> lines = lines_of(translated.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "Wir sehen die Katze.");
  CHECK(lines[1].empty());
  CHECK(lines[2].empty());
  CHECK(lines[4] == "Ich male die Lampe.");

  // Beams, batches and threads: the same translations.
  const Ended one_by_one =
      run("translator", {"translate", "--model", corpus.model, "--batch-size", "1", "--threads", "1"},
          corpus.english());
  const Ended together =
      run("translator", {"translate", "--model", corpus.model, "--batch-size", "60", "--threads", "2"},
          corpus.english());
  CHECK(one_by_one.out == together.out);
  CHECK(lines_of(together.out).size() == 60);

  const std::string out = (corpus.folder.path() / "out.de").string();
  const Ended file = run("translator", {"translate", "--model", corpus.model, "--input", corpus.source,
                                        "--output", out, "--beam", "1"});
  CHECK(file.code == 0);
  CHECK(file.out.empty());
  CHECK(read_file(out) == corpus.german());

  const Ended evaluated = run("translator", {"evaluate", "--model", corpus.model, "--source", corpus.source,
                                             "--reference", corpus.target});
  CHECK(evaluated.code == 0);
  CHECK(contains(evaluated.out, "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000"));
  CHECK(contains(evaluated.out, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"));
  CHECK(contains(evaluated.out, "chrF2 = 100.00"));
  CHECK(contains(evaluated.out, "exact match: 100.0 % (60 of 60)"));
  CHECK(contains(evaluated.out, "perplexity of the references: 1."));

  const Ended inspected = run("translator", {"inspect", "--model", corpus.model});
  CHECK(inspected.code == 0);
  for (const char* part :
       {"float32 weights", "d_model                    16", "entries, tokenizer word: <pad> <unk> <s> </s>",
        "encoder.layers.0", "decoder.layers.0", "total", "model.safetensors", " MB",
        "warmup                     20", "\ntraining\n  updates ", "sentence pairs             60"}) {
    CAPTURE(part);
    CHECK(contains(inspected.out, part));
  }

  CHECK(contains(run("translator", {"inspect", "--verify", "--model", corpus.model}).out,
                 "files match their checksums"));
  std::string weights = read_file(fs::path(corpus.model) / "model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  corpus.folder.write("model/model.safetensors", weights);
  CHECK(run("translator", {"inspect", "--model", corpus.model}).code == 0);
  const Ended damaged = run("translator", {"inspect", "--verify", "--model", corpus.model});
  CHECK(damaged.code != 0);
  CHECK(contains(damaged.err, "is damaged: model.safetensors has other bytes than were saved"));
}

TEST_CASE("models of all positions and heads are trained, saved, and translate") {
  const std::vector<std::vector<std::string>> kinds = {
      {"--positions", "rotary", "--qk-norm", "--qk-norm-kind", "rms_norm"},
      {"--positions", "alibi", "--kv-heads", "1"},
      {"--positions", "relative", "--head-dim", "6"},
      {"--positions", "shaw", "--window", "5"},
      {"--positions", "learned", "--max-length", "6"}};  // as many as the longest sentence has
  for (std::vector<std::string> more : kinds) {
    CAPTURE(more[1]);
    const TinyCorpus corpus;
    for (const char* option :
         {"--epochs", "120", "--dropout", "0", "--label-smoothing", "0", "--validate-every", "0"})
      more.emplace_back(option);
    const Ended trained = run("translator", corpus.train(more));
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);
    CHECK(contains(trained.err, "training on: 60 pairs"));
    const Ended translated = run("translator", {"translate", "--model", corpus.model}, corpus.english());
    const std::vector<std::string> lines = lines_of(translated.out), expected = lines_of(corpus.german());
    REQUIRE(lines.size() == expected.size());
    int right = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) right += lines[i] == expected[i] ? 1 : 0;
    CHECK(right >= 55);
  }
  const TinyCorpus corpus;
  CHECK(contains(run("translator", corpus.train({"--positions", "round"})).err,
                 "positions is \"round\", expected one of sinusoidal, learned, none, rotary, alibi, "
                 "relative_bias, shaw"));
  CHECK(contains(run("translator", corpus.train({"--kv-heads", "3"})).err,
                 "must be divisible by num_key_value_heads"));
}

TEST_CASE("translate draws translations when asked to, the same for a seed whatever the batches") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "3"})).code == 0);
  const auto translated = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"translate", "--model", corpus.model, "--max-length", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("translator", arguments, corpus.english());
  };
  const auto drawn = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--sample"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = translated(arguments);
    CAPTURE(ended.err);
    CHECK(ended.code == 0);
    CHECK(lines_of(ended.out).size() == 60);
    return ended.out;
  };
  const std::string first = drawn({"--seed", "3"});
  CHECK(drawn({"--seed", "3", "--batch-size", "1"}) == first);
  CHECK(drawn({"--seed", "3", "--batch-size", "7", "--threads", "1"}) == first);
  CHECK(drawn({"--seed", "4"}) != first);
  CHECK(drawn({"--seed", "3", "--temperature", "0.3"}) != first);
  CHECK(drawn({"--seed", "3", "--top-k", "2"}) != first);
  CHECK(drawn({"--seed", "3", "--top-p", "0.2"}) != first);
  // The likeliest token each time is what greedy search finds.
  const std::string greedy = translated({"--beam", "1"}).out;
  CHECK(drawn({"--temperature", "0"}) == greedy);
  CHECK(drawn({"--top-k", "1", "--seed", "9"}) == greedy);
  CHECK(contains(translated({"--top-k", "2"}).err, "--top-k requires --sample"));
  CHECK(contains(translated({"--sample", "--beam", "2"}).err, "excludes"));
  CHECK(contains(translated({"--sample", "--top-p", "0"}).err, "top_p is 0, must be in (0, 1]"));
}

TEST_CASE("translate writes attention weights when asked to") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2"})).code == 0);
  const std::string path = (corpus.folder.path() / "weights.safetensors").string();
  const Ended ended =
      run("translator", {"translate", "--model", corpus.model, "--attention", path, "--max-length", "4"},
          "We see the cat.\n\nI paint.\n");
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  const std::string file = read_file(path);
  for (const char* name : {"\"1.source.0\"", "\"1.target.0\"", "\"1.memory.0\"", "\"3.memory.0\""}) {
    CAPTURE(name);
    CHECK(contains(file, name));
  }
  CHECK_FALSE(contains(file, "\"2."));
}

TEST_CASE("guided alignment teaches the attention that translate --alignment and evaluate --alignment read") {
  const TinyCorpus corpus;
  std::string links;
  for (const std::string& line : lines_of(corpus.english()))
    links += contains(line, "look for") ? "0-0 1-1 2-1 3-2 4-3\n" : "0-0 1-1 2-2 3-3\n";
  const std::string aligned = corpus.folder.write("train.align", links).string();
  const Ended trained =
      run("translator", corpus.train({"--epochs", "60", "--dropout", "0", "--validate-every", "0",
                                      "--guided-alignment", aligned, "--guided-alignment-weight", "1"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, "guided alignment: "));
  CHECK(contains(trained.err, "  alignment "));
  const std::string out = (corpus.folder.path() / "alignments").string(),
                    soft = (corpus.folder.path() / "weights").string();
  const Ended translated =
      run("translator", {"translate", "--model", corpus.model, "--alignment", out, "--soft-alignment", soft},
          "We see the cat.\n\nThey paint the house.\n");
  CAPTURE(translated.err);
  CHECK(translated.code == 0);
  CHECK(read_file(out) == "0-0 1-1 2-2 3-3\n\n0-0 1-1 2-2 3-3\n");
  const std::string first = lines_of(read_file(soft))[0];
  CHECK(std::count(first.begin(), first.end(), ' ') == 5);   // five tokens and the end symbol
  CHECK(std::count(first.begin(), first.end(), ',') == 30);  // as many of the source
  const auto evaluated = [&](const std::string& right) {
    return run("translator", {"evaluate", "--model", corpus.model, "--source", corpus.source, "--reference",
                              corpus.target, "--alignment", corpus.folder.write("right", right).string()});
  };
  const Ended measured = evaluated(links);
  const std::string what = "alignment of the references: error rate ";
  REQUIRE(contains(measured.out, what));
  CHECK(std::stod(measured.out.substr(measured.out.find(what) + what.size())) < 0.12);
  CHECK(contains(evaluated("0-0\n").err, "has 1 lines, expected 60"));
  CHECK(contains(evaluated(links.replace(0, 3, "9-0")).err, "line 1 has the link 9-0"));
  CHECK(contains(run("translator", {"translate", "--model", corpus.model, "--alignment-head", "0"}, "x").err,
                 "no effect without --alignment"));
  // An alignment that does not fit is refused before the first update, by file and line.
  const auto refused = [&](const std::string& text) {
    const std::string file = corpus.folder.write("bad.align", text).string();
    const Ended ended = run("translator", corpus.train({"--overwrite", "--guided-alignment", file}));
    CHECK(ended.code != 0);
    CHECK_FALSE(contains(ended.err, "tokens/s"));
    return ended.err;
  };
  CHECK(contains(refused(links), "line 1: "));
  CHECK(contains(refused("0-0\n"), "is 1, must be 60"));
  CHECK(contains(refused("0-0\n0;1\n"), "line 2: "));
}

TEST_CASE("a model's folder teaches a new model, of the same vocabulary; what does not fit is refused") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "20"})).code == 0);
  const std::string student = (corpus.folder.path() / "student").string();
  const auto taught = [&](std::vector<std::string> more) {
    if (std::find(more.begin(), more.end(), "--teacher") == more.end())
      more.insert(more.end(), {"--teacher", corpus.model});
    more.insert(more.end(), {"--model", student, "--overwrite"});
    std::vector<std::string> arguments = corpus.train(more);
    const auto tokenizer = std::find(arguments.begin(), arguments.end(), "--tokenizer");
    arguments.erase(tokenizer, tokenizer + 2);
    return arguments;
  };
  const Ended trained = run("translator", taught({"--max-steps", "20", "--r-drop", "1", "--ema-decay", "0.9",
                                                  "--average-last", "2", "--validate-every", "10"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, "  r-drop "));
  CHECK(contains(trained.err, "  distillation "));
  const std::string vocabulary = read_file(std::filesystem::path(corpus.model) / "tokenizer.vocab");
  CHECK(contains(vocabulary, "Hund"));
  CHECK(read_file(std::filesystem::path(student) / "tokenizer.vocab") == vocabulary);
  const Ended resumed = run("translator", {"train", "--resume", "--model", student, "--max-steps", "40"});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "  distillation "));

  const auto refused = [&](const std::vector<std::string>& arguments) {
    const Ended ended = run("translator", arguments);
    CHECK(ended.code == 1);
    CHECK_FALSE(contains(ended.err, "training data"));
    return ended.err;
  };
  CHECK(contains(refused(corpus.train({"--overwrite", "--teacher", corpus.model})),
                 "--tokenizer sets up a new vocabulary"));
  CHECK(contains(refused(taught({"--teacher", "nowhere"})), "'nowhere' does not exist"));
  CHECK(contains(refused(taught({"--r-drop", "1", "--dropout", "0"})), "the model has no dropout"));
  CHECK(contains(refused(corpus.train({"--overwrite", "--distillation-weight", "0.3"})),
                 "no effect without --teacher"));
  // Another corpus's vocabulary.
  const std::string other = (corpus.folder.path() / "other").string();
  REQUIRE(
      run("translator", corpus.train({"--model", other, "--vocab-size", "12", "--max-steps", "1"})).code ==
      0);
  std::vector<std::string> both = taught({"--teacher", corpus.model + "," + other});
  CHECK(contains(refused(both), "model 1 has a vocabulary of "));
  both = taught({"--init-from", other});
  CHECK(contains(refused(both), "different vocabularies"));
}

TEST_CASE("a line longer than the model was trained for is translated in parts, and said so") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "1", "--max-length", "12"})).code == 0);
  std::string line;
  for (int i = 0; i < 300; ++i) line += "dog ";
  const Ended ended = run("translator", {"translate", "--model", corpus.model, "--max-length", "5"},
                          "I see the dog.\n" + line + "\n\n");
  CHECK(ended.code == 0);
  CHECK(lines_of(ended.out).size() == 3);
  CHECK(contains(ended.err, "1 line with a sentence of more than 12 tokens, which was translated in parts"));
}

TEST_CASE("the seed decides, and the number of threads does not") {
  const TinyCorpus corpus;
  const auto weights = [&](const std::string& seed, const std::string& threads) {
    std::vector<std::string> arguments = corpus.train({"--max-steps", "8", "--overwrite", "--seed", seed});
    *(std::find(arguments.begin(), arguments.end(), "--threads") + 1) = threads;
    CHECK(run("translator", arguments).code == 0);
    return read_file(fs::path(corpus.model) / "model.safetensors");
  };
  const std::string first = weights("7", "1");
  CHECK(first == weights("7", "3"));
  CHECK(first != weights("8", "1"));
}

TEST_CASE("validation: held out where none is given, and patience ends training") {
  const TinyCorpus corpus;
  std::string english, german;
  for (int i = 0; i < 20; ++i) {
    english += corpus.english();
    german += corpus.german();
  }
  const std::string source = corpus.folder.write("many.en", english).string(),
                    target = corpus.folder.write("many.de", german).string();
  const auto with_files = [&](std::vector<std::string> arguments) {
    arguments[2] = source;
    arguments[4] = target;
    return arguments;
  };
  const Ended held_out =
      run("translator", with_files(corpus.train({"--max-steps", "4", "--validate-every", "2"})));
  CHECK(held_out.code == 0);
  CHECK(contains(held_out.err, "holding out 12 pairs, evenly spread over the training data"));
  CHECK(contains(held_out.err, "training on: 1188 pairs"));
  CHECK(contains(held_out.err, "validation after step 2, epoch 1"));
  CHECK(contains(held_out.err, "(best so far)"));

  const Ended given = run("translator", corpus.train({"--overwrite", "--valid-source", corpus.source,
                                                      "--valid-target", corpus.target, "--max-steps", "4",
                                                      "--validate-every", "2", "--average-last", "2"}));
  CHECK(given.code == 0);
  CHECK(contains(given.err, "validation data: 60 pairs read"));
  CHECK(contains(given.err, "the mean of the weights of the last 2 validations"));
}

TEST_CASE("one file of source, tab, target will do") {
  const TinyCorpus corpus;
  std::string both;
  const auto english = lines_of(corpus.english()), german = lines_of(corpus.german());
  for (std::size_t i = 0; i < english.size(); ++i) both += english[i] + "\t" + german[i] + "\n";
  const std::string tsv = corpus.folder.write("both.tsv", both).string();
  std::vector<std::string> arguments = corpus.train({"--max-steps", "1"});
  arguments.erase(arguments.begin() + 1, arguments.begin() + 5);
  arguments.insert(arguments.end(), {"--tsv", tsv});
  const Ended ended = run("translator", arguments);
  CHECK(ended.code == 0);
  CHECK(contains(ended.err, "60 pairs read, 60 kept"));
}

TEST_CASE(
    "Ctrl-C saves and says how to go on; what is resumed ends with the bits of what was not interrupted") {
  const TinyCorpus corpus;
  const std::vector<std::string> options = {"--epochs",       "600", "--validate-every", "40",
                                            "--average-last", "3",   "--clip",           "0.5"};
  Program interrupted("translator", corpus.train(options));
  REQUIRE(interrupted.says("  step 20/"));
  interrupted.signal(SIGINT);
  const Ended stopped = interrupted.wait();
  CAPTURE(stopped.err);
  REQUIRE(stopped.code == 130);
  CHECK(contains(stopped.err, "interrupted: finishing this update, then saving"));
  CHECK(contains(stopped.err, "resume with: translator train --resume --model " + corpus.model));
  CHECK(run("translator", {"translate", "--model", corpus.model, "--max-length", "3"}, "I see\n").code == 0);

  const Ended resumed = run("translator", {"train", "--resume", "--model", corpus.model, "--threads", "2"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(contains(resumed.err, "resuming after step "));
  const std::string weights = read_file(fs::path(corpus.model) / "model.safetensors");
  const std::string state = read_file(fs::path(corpus.model) / "training/last.safetensors");
  REQUIRE(run("translator", corpus.train({"--epochs", "600", "--validate-every", "40", "--average-last", "3",
                                          "--clip", "0.5", "--overwrite"}))
              .code == 0);
  CHECK(weights == read_file(fs::path(corpus.model) / "model.safetensors"));
  CHECK(state == read_file(fs::path(corpus.model) / "training/last.safetensors"));
}

TEST_CASE(
    "SIGTERM and SIGHUP save too, and leftovers of a killed run go away on --resume, and a second signal "
    "ends at once with the checkpoint unharmed") {
  const TinyCorpus corpus;
  {
    Program program("translator", corpus.train({"--epochs", "100000"}));
    REQUIRE(program.says("  step 20/"));
    program.signal(SIGTERM);
    CHECK(program.wait().code == 130);
  }
  {
    Program program("translator", {"train", "--resume", "--model", corpus.model});
    REQUIRE(program.says("resuming after step"));
    program.signal(SIGHUP);
    CHECK(program.wait().code == 130);
  }
  // No process has this number: Linux's largest is 2^22.
  const std::string killed =
      corpus.folder.write("model/training/last.safetensors.tmp-99999999-3", "half").string();
  const std::string mine = corpus.folder.write("model/notes.tmp-old", "mine").string();
  Program program("translator", {"train", "--resume", "--model", corpus.model});
  REQUIRE(program.says("resuming after step"));
  program.signal(SIGINT);
  program.signal(SIGTERM);
  CHECK(program.wait().code == 130);
  const Ended ended = run("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "1"});
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  CHECK_FALSE(fs::exists(killed));
  CHECK(fs::exists(mine));
}

TEST_CASE("the committed folder keeps translating") {
  const std::string folder = (fixtures_folder() / "translation_model").string();
  const Ended ended = run("translator", {"translate", "--model", folder},
                          "I see the dog.\n\nDo you see the house?\nThe cat sleeps.\n");
  CHECK(ended.code == 0);
  CHECK(ended.out == "Ich sehe den Hund.\n\nSiehst du das Haus?\nDie Katze schläft.\n");
  CHECK(run("translator", {"inspect", "--model", folder}).code == 0);
}

TEST_CASE("a model of another variant is trained, goes on, translates, and says what it is") {
  const TinyCorpus corpus;
  const std::vector<std::string> variant = {
      "--norm",           "rms_norm",     "--gated", "--activation", "silu", "--sandwich-norm",
      "--embedding-norm", "--layer-drop", "0.1",     "--max-steps",  "3"};
  REQUIRE(run("translator", corpus.train(variant)).code == 0);
  CHECK(run("translator", {"translate", "--model", corpus.model}, "I see the dog.\n").code == 0);
  const Ended inspected = run("translator", {"inspect", "--parameters", "--model", corpus.model});
  for (const char* part : {"rms_norm", "silu", "linear3", "post_norm1", "source_embedding_norm"}) {
    CAPTURE(part);
    CHECK(contains(inspected.out, part));
  }
  CHECK(run("translator", corpus.train({"--resume", "--max-steps", "5"})).code == 0);
  const Ended changed =
      run("translator", corpus.train({"--resume", "--max-steps", "7", "--norm", "layer_norm"}));
  CHECK(changed.code != 0);
  CHECK(contains(changed.err, "--norm \"layer_norm\" cannot change when a training is resumed"));
}
