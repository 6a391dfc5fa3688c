#include <algorithm>
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

namespace {

std::string weights_of(const std::string& folder) {
  return read_file(fs::path(folder) / "model.safetensors");
}

/// Help as one line, whatever its line breaks.
std::string on_one_line(const std::string& help) {
  std::string line;
  for (const char c : help) {
    if (c != ' ' && c != '\n') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

const std::vector<std::string> commands = {"train",     "translate", "score",    "evaluate", "inspect",
                                           "calibrate", "import",    "quantize", "compare",  "shortlist"};

std::string refusal(const std::vector<std::string>& arguments) {
  const Ended ended = run("translator", arguments);
  CHECK(ended.code == 1);
  return ended.err;
}

}  // namespace

TEST_CASE("an encoder and a decoder of their own are trained, go on, translate, and are quantized") {
  const TinyCorpus corpus;
  const Ended trained =
      run("translator",
          corpus.train({"--num-encoder-layers", "2", "--encoder-num-heads", "4", "--decoder-dim-feedforward",
                        "20", "--norm-first=false", "--decoder-norm-first", "--decoder-attention-positions",
                        "rotary", "--decoder-no-bias", "--decoder-no-final-norm", "--max-steps", "3"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const nlohmann::json model = options_json(corpus.model).at("model");
  CHECK(model.at("num_encoder_layers") == 2);
  CHECK(model.at("num_decoder_layers") == 1);
  CHECK(model.at("num_heads") == 2);
  CHECK(model.at("encoder") == nlohmann::json{{"num_heads", 4}});
  const nlohmann::json& decoder = model.at("decoder");
  CHECK(decoder.at("dim_feedforward") == 20);
  CHECK(decoder.at("norm_first") == true);
  CHECK(decoder.at("bias") == false);
  CHECK(decoder.at("attention_positions") == "rotary");
  CHECK(decoder.at("final_norm") == false);

  const auto resume = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "--resume", "--model", corpus.model, "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  CHECK(contains(refusal(resume({"--encoder-num-heads", "2"})),
                 "--encoder-num-heads 2 cannot change when a training is resumed; it was 4"));
  CHECK(contains(refusal(resume({"--encoder-dim-feedforward", "20"})),
                 "--encoder-dim-feedforward 20 cannot change when a training is resumed; it was 32"));
  const Ended resumed =
      run("translator", resume({"--max-steps", "5", "--encoder-num-heads", "4", "--decoder-dim-feedforward",
                                "20", "--layers", "1", "--num-encoder-layers", "2"}));
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(contains(resumed.err, "resuming after step 3"));
  CHECK(options_json(corpus.model).at("model") == model);

  const auto translates = [](const std::string& folder) {
    const Ended translated =
        run("translator", {"translate", "--model", folder, "--max-length", "5"}, "I see the dog.\n");
    CAPTURE(translated.err);
    CHECK(translated.code == 0);
    CHECK(lines_of(translated.out).size() == 1);
  };
  translates(corpus.model);
  const Ended inspected = run("translator", {"inspect", "--parameters", "--model", corpus.model});
  CHECK(inspected.code == 0);
  CHECK(contains(inspected.out, "encoder                    {\"num_heads\":4}"));
  REQUIRE(run("translator", {"quantize", "--model", corpus.model, "--to", "int8"}).code == 0);
  translates(corpus.model + "-int8");
}

TEST_CASE(
    "a student with an SSRU is trained, goes on as if it had not stopped, translates, and is quantized") {
  const TinyCorpus corpus;
  const std::vector<std::string> student = {"--num-encoder-layers", "2", "--decoder-self-mixing", "ssru"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), student.begin(), student.end());
    return corpus.train(more);
  };
  const Ended whole = run("translator", with({"--max-steps", "40"}));
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  const nlohmann::json json = options_json(corpus.model);
  CHECK(json.at("model").at("decoder").at("self_mixing") == "ssru");
  CHECK(json.at("model").at("self_mixing") == "attention");
  const std::string expected = weights_of(corpus.model);
  REQUIRE(run("translator", with({"--overwrite", "--max-steps", "20"})).code == 0);
  const Ended resumed = run(
      "translator", {"train", "--model", corpus.model, "--resume", "--max-steps", "40", "--threads", "1"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(weights_of(corpus.model) == expected);
  CHECK(options_json(corpus.model).at("training").at("max_steps") == 40);
  CHECK(contains(run("translator", {"inspect", "--model", corpus.model}).out, "ssru"));
  const auto translate = [&](const std::string& model) {
    return run("translator", {"translate", "--model", model, "--max-length", "8"},
               "I see the dog.\nWe paint the cat.\n");
  };
  CHECK(translate(corpus.model).code == 0);
  REQUIRE(run("translator", {"quantize", "--model", corpus.model, "--to", "int8"}).code == 0);
  CHECK(translate(corpus.model + "-int8").out == translate(corpus.model).out);
  CHECK(contains(refusal(corpus.train({"--overwrite", "--self-mixing", "ssru"})),
                 "self_mixing is ssru in the encoder"));
  CHECK(contains(refusal(with({"--overwrite", "--decoder-attention-positions", "rotary"})),
                 "needs attention_positions none"));
}

TEST_CASE("what is impossible in one stack is named by its own flag") {
  const TinyCorpus corpus;
  CHECK(contains(refusal(corpus.train({"--encoder-num-heads", "3"})),
                 "encoder.layer] d_model is 16, must be divisible by num_heads, which is 3 "
                 "(--encoder-num-heads)"));
  CHECK(contains(refusal(corpus.train({"--decoder-d-model", "8"})), "--decoder-d-model"));
  CHECK(contains(refusal(corpus.train({"--decoder-self-mixing", "lstm"})),
                 "--decoder-self-mixing is 'lstm', expected one of attention, ssru\n"));
  CHECK(contains(refusal(corpus.train({"--encoder-query-key-norm", "--encoder-query-key-norm-kind", "l2"})),
                 "--encoder-query-key-norm-kind is 'l2', expected one of layer_norm, rms_norm\n"));
  CHECK_FALSE(fs::exists(corpus.model));
}

TEST_CASE("a field's own flag does what its short one does, and true can be turned off") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2", "--pre-norm", "--kv-heads", "1", "--clip",
                                          "0.5", "--tie", "none", "--bf16"}))
              .code == 0);
  const std::string shorter = weights_of(corpus.model);
  const nlohmann::json told = options_json(corpus.model);
  CHECK(told.at("training").at("clip_norm") == 0.5);
  CHECK(told.at("training").at("precision") == "bf16");
  CHECK(told.at("model").at("tying") == "none");
  std::vector<std::string> long_names =
      corpus.train({"--overwrite", "--max-steps", "2", "--num-encoder-layers", "1", "--num-decoder-layers",
                    "1", "--norm-first", "--num-key-value-heads", "1", "--clip-norm", "0.5", "--tying",
                    "none", "--precision", "bf16"});
  std::replace(long_names.begin(), long_names.end(), std::string("--heads"), std::string("--num-heads"));
  std::replace(long_names.begin(), long_names.end(), std::string("--ff"), std::string("--dim-feedforward"));
  const Ended longer = run("translator", long_names);
  CAPTURE(longer.err);
  REQUIRE(longer.code == 0);
  CHECK(weights_of(corpus.model) == shorter);
  CHECK(options_json(corpus.model) == told);

  REQUIRE(run("translator", corpus.train({"--overwrite", "--max-steps", "1", "--no-bias", "--no-final-norm",
                                          "--gated=false", "--separate-vocab"}))
              .code == 0);
  const nlohmann::json model = options_json(corpus.model).at("model");
  CHECK(model.at("bias") == false);
  CHECK(model.at("final_norm") == false);
  CHECK(model.at("gated") == false);
  CHECK(model.at("tying") == "target");  // --tie auto
}

TEST_CASE("fields of one kind of positions: in effect with that kind, refused without") {
  const TinyCorpus corpus;
  REQUIRE(
      run("translator", corpus.train({"--max-steps", "1", "--positions", "rotary", "--rotary-base", "500"}))
          .code == 0);
  CHECK(options_json(corpus.model).at("model").at("rotary_base") == 500);
  CHECK(contains(refusal(corpus.train({"--overwrite", "--rotary-base", "500"})),
                 "--rotary-base has no effect without --attention-positions rotary: give both"));
  CHECK(contains(refusal(corpus.train({"--overwrite", "--positions", "rotary", "--sinusoid-base", "50"})),
                 "--sinusoid-base has no effect without --positions sinusoidal"));
  CHECK(contains(refusal(corpus.train({"--overwrite", "--encoder-shaw-max-distance", "4"})),
                 "--encoder-shaw-max-distance has no effect without --encoder-attention-positions shaw"));
  // Sinusoids are the default.
  REQUIRE(
      run("translator", corpus.train({"--overwrite", "--max-steps", "1", "--sinusoid-base", "500"})).code ==
      0);
  CHECK(options_json(corpus.model).at("model").at("sinusoid_base") == 500);
  CHECK(contains(refusal({"train", "--resume", "--model", corpus.model, "--sinusoid-base", "600"}),
                 "--sinusoid-base 600.0 cannot change"));
  // Both kinds at once.
  REQUIRE(run("translator", corpus.train({"--overwrite", "--max-steps", "1", "--positions", "learned",
                                          "--attention-positions", "alibi"}))
              .code == 0);
  const nlohmann::json model = options_json(corpus.model).at("model");
  CHECK(model.at("positions") == "learned");
  CHECK(model.at("attention_positions") == "alibi");
}

TEST_CASE("a resumed training keeps the settings of its folder, and refuses unknown ones") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2", "--clip", "0.25"})).code == 0);
  nlohmann::json json = options_json(corpus.model);
  const Ended resumed = run("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "3"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(options_json(corpus.model).at("training").at("clip_norm") == 0.25);
  CHECK(contains(refusal({"train", "--resume", "--model", corpus.model, "--batch-tokens", "60"}),
                 "--batch-tokens 60 cannot change when a training is resumed; it was 120"));
  json.at("training")["colour"] = "red";
  corpus.folder.write("model/options.json", json.dump());
  CHECK(contains(refusal({"train", "--resume", "--model", corpus.model}), "colour"));
}

TEST_CASE("help has groups, defaults and ranges, and what is rare only with --help-all") {
  const std::string help = run("translator", {"train", "--help"}).out;
  for (const char* part :
       {"\nModel:\n", "\nTraining:\n", "\nData:\n", "--d-model INT=planned",
        "--heads,--num-heads INT=planned", "--ff,--dim-feedforward INT=planned", "--layers INT=planned",
        "--layer-drop FLOAT=0", "(in [0, 1))", "--tie,--tying TEXT=auto", "(none, target, all)",
        "--bias,--no-bias biases", "on in a plan", "--validate-sample INT=planned",
        "--learning-rate FLOAT=planned", "; 0.001 with --init-from", "with --init-from: 400, or",
        "--decoder-num-heads 4", "--help-all"}) {
    CAPTURE(part);
    CHECK((contains(help, part) || contains(on_one_line(help), part)));
  }
  const std::string examples = help.substr(std::min(help.size(), help.find("\nExamples:\n")));
  CHECK(std::count(examples.begin(), examples.end(), '\n') == 4);
  CHECK(contains(examples, "\ntranslator train --source train.en --target train.de --model en-de "));
  CHECK(contains(examples, "\ntranslator train --resume --model en-de "));
  CHECK_FALSE(contains(help, "--encoder-head-dim"));
  CHECK_FALSE(contains(help, "--rotary-base"));
  CHECK_FALSE(contains(help, "--padding-index"));
  for (const char* part : {"{false}", " =false", " =true", "weights; not given"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(on_one_line(help), part));
  }
  const std::string all = run("translator", {"train", "--help-all"}).out;
  for (const char* part : {"--encoder-head-dim INT", "--decoder-norm-first,--decoder-no-norm-first",
                           "--rotary-base FLOAT=10000", "--d-model INT=planned"}) {
    CAPTURE(part);
    CHECK(contains(all, part));
  }
  const std::string translate = on_one_line(run("translator", {"translate", "--help"}).out);
  for (const char* part : {"--beam,--beam-size INT=4", "--batch-size INT=32", "--top-p FLOAT=1",
                           "(in (0, 1])", "--rule TEXT=gnmt", "(gnmt, huggingface, ctranslate2, marian)"}) {
    CAPTURE(part);
    CHECK(contains(translate, part));
  }
}

TEST_CASE("fields of the search are flags of translate") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "3"})).code == 0);
  const auto translated = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"translate", "--model", corpus.model, "--max-length", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("translator", arguments, "I see the dog.\nWe paint the cat.\n");
  };
  CHECK(translated({"--beam-size", "2"}).out == translated({"--beam", "2"}).out);
  const auto known = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"translate", "--model",
                                          (fixtures_folder() / "translation_model").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("translator", arguments, "I see the dog.\n").out;
  };
  CHECK(known({}) == "Ich sehe den Hund.\n");
  CHECK(known({"--min-length", "12"}).size() > known({}).size() + 10);
  CHECK(translated({"--rule", "huggingface", "--early-stopping"}).code == 0);
  CHECK(contains(translated({"--rule", "mine"}).err,
                 "rule is \"mine\", expected one of gnmt, huggingface, ctranslate2"));
  CHECK(contains(translated({"--repetition-penalty", "0"}).err, "repetition_penalty is 0, must be positive"));
  CHECK(contains(translated({"--batch-tokens", "0"}).err, "batch_tokens is 0, must be positive"));
  CHECK(contains(translated({"--min-length", "9"}).err,
                 "min_length is 9, must be at most max_length, which is 8"));
  CHECK(contains(translated({"--sample", "--rule", "gnmt"}).err, "excludes"));
  CHECK(translated({"--sample", "--repetition-penalty", "3"}).code == 0);
  CHECK(translated({"--sample=false"}).out == translated({}).out);
  CHECK(contains(translated({"--sample=maybe"}).err, "--sample"));
  CHECK(contains(translated({"--force-end=2"}).err, "--force-end is '2', expected true or false"));
  const std::string file = corpus.model + "/both";
  CHECK(contains(translated({"--attention", file, "--output", file}).err, "expected two files"));
  CHECK(contains(translated({"--alignment", corpus.model + "/./both", "--output", file}).err,
                 "expected two files"));
  CHECK(
      contains(translated({"--output", "/dev/stdout"}).err, "'/dev/stdout', which refers to a regular file"));
  const std::string input = corpus.folder.write("own.txt", "I see the dog.\n").string();
  CHECK(contains(translated({"--input", input, "--output", input}).err, "which --input reads"));
  CHECK(contains(translated({"--output", corpus.model + "/options.json"}).err, "a file in the model folder"));
  // No other command replaces a file that it reads, either.
  for (const char* command : {"evaluate", "score", "shortlist"}) {
    CAPTURE(command);
    const std::string other = std::string(command) == "evaluate" ? "--reference" : "--target";
    CHECK(contains(run("translator", {command, "--model", corpus.model, "--source", corpus.source, other,
                                      input, "--output", input})
                       .err,
                   "which " + other + " reads; expected another file"));
  }
  CHECK(read_file(input) == "I see the dog.\n");
}

TEST_CASE("help of every command has lines of at most 100 columns") {
  const std::string all = run("translator", {"--help"}).out;
  const auto check = [](const std::vector<std::string>& arguments) {
    CAPTURE(arguments[0]);
    const Ended ended = run("translator", arguments);
    CHECK(ended.code == 0);
    for (const std::string& line : lines_of(ended.out)) {
      CAPTURE(line);
      CHECK(line.size() <= 100);
    }
    return ended.out;
  };
  for (const std::string& name : commands) {
    CHECK(contains(all, "\n  " + name + " "));
    CHECK(contains(check({name, "--help"}), "--print-config"));
  }
  check({"train", "--help-all"});
  CHECK(lines_of(all).size() < 40);
  const std::string help = on_one_line(check({"translate", "--help"}));
  CHECK(contains(help, "1: greedy search (above 0); not with --sample"));
  CHECK(contains(help, "0: always the likeliest token (0 or above); needs --sample"));
}

TEST_CASE("what --print-config prints is read by --config, for every command") {
  const TinyCorpus corpus;
  for (const std::string& name : commands) {
    CAPTURE(name);
    std::vector<std::string> arguments = {name};
    std::vector<std::string> expected;
    const auto give = [&](const std::vector<std::string>& more, const std::vector<std::string>& lines) {
      arguments.insert(arguments.end(), more.begin(), more.end());
      expected.insert(expected.end(), lines.begin(), lines.end());
    };
    give({"--model", "a \"b\" \\ c#"}, {});
    if (name == "translate") {
      give({"--model", "d", "--num-hypotheses", "2", "--with-prefix", "--length-penalty=0.25"},
           {"model = [\"a \\\"b\\\" \\\\ c#\", \"d\"]", "n-best = 2", "with-prefix = true",
            "length-penalty = 0.25", "# beam = 4", "# sample = false"});
    }
    if (name == "train") {
      give({"--no-bias", "--schedule", "noam", "--dropout", "0.3", "--encoder-num-heads", "4", "--tie",
            "auto"},
           {"bias = false", "schedule = \"inverse-sqrt\"", "dropout = 0.3", "encoder-num-heads = 4",
            "tie = \"auto\"", "# gated = false", "# vocab-size = 0", "# d-model = planned",
            "# pre-norm = planned", "# residual-dropout =", "# source =", "# final-norm = true"});
    }
    arguments.emplace_back("--print-config");
    const Ended printed = run("translator", arguments);
    CAPTURE(printed.err);
    CHECK(printed.code == 0);
    for (const std::string& line : expected) {
      CAPTURE(line);
      CHECK(contains(printed.out, "\n" + line + "\n"));
    }
    const std::string file = corpus.folder.write("all.toml", printed.out).string();
    const Ended again = run("translator", {name, "--config", file, "--print-config"});
    CAPTURE(again.err);
    CHECK(again.out == printed.out);
  }
}

TEST_CASE("a file of options: the command line wins, and what is wrong in it has its line") {
  const TinyCorpus corpus;
  const std::string known = (fixtures_folder() / "translation_model").string();
  const auto with = [&](const std::string& text, std::vector<std::string> more = {}) {
    const std::string file = corpus.folder.write("f.toml", text).string();
    more.insert(more.begin(), {"translate", "--config", file});
    return run("translator", more, "I see the dog.\n");
  };
  const auto refused = [&](const std::string& text, const std::string& why) {
    const Ended ended = with(text);
    CAPTURE(ended.err);
    CHECK(ended.code == 1);
    CHECK(contains(ended.err, why));
  };
  const std::string model = "model = '" + known + "'\n";
  const Ended read =
      with("# mine\n\n" + model + "n_best = 2  # two\n[train]\nlayers = 5\n[translate]\nbeam=3\n");
  CAPTURE(read.err);
  CHECK(read.code == 0);
  CHECK(lines_of(read.out).size() == 2);
  CHECK(lines_of(with(model + "n-best = 2\n", {"--n-best", "3"}).out).size() == 3);
  // A command's own section comes before what stands above all sections, wherever the two give an option.
  for (const char* both : {"n-best = 2\n[translate]\nn-best = 3\nbeam = 3\n",
                           "n-best = 2\n[train]\nlayers = 5\n[translate]\nbeam = 3\nn-best = 3\n"})
    CHECK(lines_of(with(model + both).out).size() == 3);
  refused(model + "beam = four\n[translate]\nbeam = 4\nbeam-size = 5\n", "line 5: beam is given twice");
  CHECK(with("[translate]\nmodel = [" + known + "]\nsample = true\nseed = 3").code == 0);
  CHECK(with("model = nowhere\n", {"--model", known}).out == "Ich sehe den Hund.\n");
  CHECK(with(model + "sample = false\nbeam = 3\n").out == "Ich sehe den Hund.\n");
  refused(model + "config = 'f'\n", "line 2: 'config' is allowed on the command line only");
  refused(model + "beems = 3\n",
          "f.toml', line 2: there is no option 'beems' of translator translate: did you mean 'beam'?");
  refused(model + "beam = four\n", "f.toml', line 2: --beam is 'four', expected a whole number");
  refused(model + "\n[translate]\nbeam = 0\n", "beam_size is 0, must be positive (--beam); see '");
  refused(model + "\n[translate]\nbeam = 0\n", "f.toml', line 4");
  refused(model + "beam 4\n", "line 2: 'beam 4' has no '=', expected key = value");
  refused(model + "beam =\n", "line 2: a value is missing");
  refused(model + "beam = 4\nbeam-size = 4\n", "line 3: beam is given twice, expected once: line 2 has it");
  refused(model + "beam = [4]\n", "line 2: beam is a list, expected one value");
  refused("model = [a, b\n", "line 1: a list has no ']'");
  refused("model = \"a\n", "line 1: a string is not closed");
  refused("model = \"a\" b\n", "line 1: 'b' follows the value");
  refused("[dance]\nx = 1\n",
          "line 2: there is no command 'dance', expected a section named after a command");
  refused("[tranlate]\nx = 1\n", "line 2: there is no command 'tranlate': did you mean 'translate'?");
  refused(model + "with-prefix = maybe\n", "expected true or false");
  refused(model + "top-k = 3\n", "--top-k requires --sample");
  CHECK(contains(run("translator", {"translate", "--config", "/no/file"}).err, "/no/file"));
}

TEST_CASE("a file that cannot be written is found before anything is loaded") {
  const TinyCorpus corpus;
  const std::string nowhere = "/no/folder/file", known = (fixtures_folder() / "translation_model").string();
  for (const char* option : {"--output", "--alignment", "--soft-alignment", "--attention", "--explore"}) {
    CAPTURE(option);
    CHECK(contains(refusal({"translate", "--model", "/no/model", option, nowhere}), nowhere));
  }
  CHECK(contains(refusal({"score", "--model", "/no/model", "--source", corpus.source, "--target",
                          corpus.target, "--output", nowhere}),
                 nowhere));
  CHECK(contains(refusal({"curves", "/no/training", "--output", nowhere}), nowhere));
  std::filesystem::create_directories(corpus.folder.path() / "model" / "confidence.json");
  CHECK(contains(refusal({"calibrate", "--model", (corpus.folder.path() / "model").string(), "--source",
                          corpus.source, "--reference", corpus.target, "--save"}),
                 "confidence.json"));
}

TEST_CASE("a path that cannot be looked at is an error as any other") {
  const TinyCorpus corpus;
  const std::string longer(300, 'x');
  for (const std::vector<std::string>& call : std::vector<std::vector<std::string>>{
           {"translate", "--model", longer},
           {"inspect", "--model", longer},
           {"quantize", "--model", longer, "--to", "int8"},
           {"curves", longer, "--output", (corpus.folder.path() / "svg").string()},
           {"prepare", "--source", longer, "--target", corpus.target, "--output", corpus.model},
           {"train", "--source", longer, "--target", corpus.target, "--model", corpus.model},
           {"train", "--resume", "--model", longer},
           {"import", "--from", longer, "--model", corpus.model}}) {
    CAPTURE(call.front());
    const std::string why = refusal(call);
    CHECK(contains(why, longer));
    CHECK_FALSE(contains(why, "filesystem error"));
  }
  CHECK(contains(refusal({"curves", longer, "--output", (corpus.folder.path() / "svg").string()}),
                 "[curves] cannot read '" + longer + "': File name too long"));
}

TEST_CASE("an option that takes one value is refused when it is given twice") {
  const std::string known = (fixtures_folder() / "translation_model").string();
  CHECK(contains(refusal({"translate", "--model", known, "--beam", "4", "--beam-size", "5"}),
                 "--beam is given twice: 4 and 5; expected once"));
  CHECK(contains(refusal({"train", "--model", "a", "--model", "b"}), "--model is given twice: a and b"));
  CHECK(contains(refusal({"train", "--model", "a", "--bias", "--no-bias"}), "--bias is given twice"));
  CHECK(contains(refusal({"compare", "--model", "a", "--model", "b", "--with", "c", "--source", "d",
                          "--reference", "e"}),
                 "--model is given twice"));
}

TEST_CASE("numbers that would overflow are refused by name") {
  const TinyCorpus corpus;
  for (const char* option : {"--head-dim", "--accumulate", "--max-length", "--shaw-max-distance",
                             "--learned-position-offset", "--vocab-size"}) {
    CHECK(contains(refusal(corpus.train({option, "9223372036854775807"})),
                   std::string(option) + " is 9223372036854775807, expected at most 2147483647"));
  }
}
