#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "folders.hpp"
#include "test_tools.hpp"
#include "translator_corpus.hpp"

using namespace eigenformer::testing;

namespace {

const std::string known = (fixtures_folder() / "model_v1").string();
const std::string two_lines = "I see the dog.\n\nWe paint the cat.\n";

Ended translate(const std::vector<std::string>& more, const std::string& input = two_lines) {
  std::vector<std::string> arguments = {"translate", "--model", known, "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run("translator", arguments, input);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t')
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

std::string refusal(const std::vector<std::string>& more) {
  const Ended ended = translate(more);
  CHECK(ended.code == 1);
  return ended.err;
}

}  // namespace

TEST_CASE("n best: as many lines for each line as text, ranks in tsv, lists in jsonl") {
  const std::string best = translate({}).out;
  const std::vector<std::string> text = lines_of(translate({"--n-best", "3"}).out);
  REQUIRE(text.size() == 9);
  CHECK(text[0] == lines_of(best)[0]);
  CHECK(text[1] != text[0]);
  CHECK(text[3].empty());
  CHECK(text[5].empty());
  CHECK(text[6] == lines_of(best)[2]);
  const std::vector<std::string> tsv =
      lines_of(translate({"--n-best", "3", "--output-format", "tsv", "--scores"}).out);
  REQUIRE(tsv.size() == 8);  // the names, three, one, three
  CHECK(tsv[0] ==
        "line\trank\ttranslation\tscore\tlog_probability\tconfidence\ttokens\ttoken_log_probabilities\t"
        "word_confidences");
  CHECK(fields_of(tsv[2])[0] == "1");
  CHECK(fields_of(tsv[2])[1] == "2");
  CHECK(fields_of(tsv[2])[2] == text[1]);
  const Ended ended = translate({"--n-best", "3", "--output-format", "jsonl", "--scores"});
  CAPTURE(ended.err);
  const std::vector<std::string> jsonl = lines_of(ended.out);
  REQUIRE(jsonl.size() == 3);
  const auto object = nlohmann::json::parse(jsonl[2]);
  CHECK(object.at("line") == 3);
  CHECK(object.at("source") == "We paint the cat.");
  for (std::size_t k = 0; k < 3; ++k) {
    const auto& t = object.at("translations")[k];
    CHECK(t.at("text") == text[6 + k]);
    double sum = 0;
    for (const auto& token : t.at("tokens")) sum += token.at("log_probability").get<double>();
    CHECK(std::abs(sum - t.at("log_probability").get<double>()) < 1e-4);
    CHECK(fields_of(tsv[5 + k])[4] == t.at("log_probability").dump());
    CHECK(t.at("confidence") <= 1);
    CHECK(t.at("words").size() >= 1);
  }
  CHECK(nlohmann::json::parse(jsonl[1]).at("translations")[0].at("text") == "");
  // What n best says of a text is what scoring it says.
  const TinyCorpus corpus;
  const auto source = corpus.folder.write("s", "I see the dog.\n\n").string(),
             target = corpus.folder.write("t", text[1] + "\nx\n").string();
  const std::vector<std::string> score = {"score", "--model", known, "--source", source, "--target", target};
  const Ended scored = run("translator", score);
  CAPTURE(scored.err);
  CHECK(scored.code == 0);
  REQUIRE(lines_of(scored.out).size() == 2);
  CHECK(std::abs(std::stod(lines_of(scored.out)[0]) - std::stod(fields_of(tsv[2])[4])) < 1e-4);
  CHECK(lines_of(scored.out)[1] == "nan");
  CHECK(contains(scored.err, "1 of 2 pairs scored"));
  std::vector<std::string> as_json = score;
  as_json.insert(as_json.end(), {"--output-format", "jsonl", "--scores"});
  const auto pair = nlohmann::json::parse(lines_of(run("translator", as_json).out)[0]);
  CHECK(std::abs(std::exp(-pair.at("log_probability").get<double>() / pair.at("num_tokens").get<double>()) -
                 pair.at("perplexity").get<double>()) < 1e-3);
  CHECK(pair.at("tokens").size() == pair.at("num_tokens"));
  const auto longer = corpus.folder.write("l", "x\ny\nz\n").string();
  const Ended uneven = run("translator", {"score", "--model", known, "--source", source, "--target", longer});
  CHECK(uneven.code == 1);
  CHECK(contains(uneven.err, "ends after 2 lines and '" + longer + "' goes on"));
}

TEST_CASE("prefixes, several samples, min-p, minimum Bayes risk, diverse beams, coverage") {
  const std::vector<std::string> prefixed =
      lines_of(translate({"--with-prefix"}, "I see the dog.\tWir\nI see the dog.\nI see the dog.\t\n").out);
  REQUIRE(prefixed.size() == 3);
  CHECK(prefixed[0].rfind("Wir", 0) == 0);
  CHECK(prefixed[1] == lines_of(translate({}).out)[0]);
  CHECK(prefixed[2] == prefixed[1]);

  const auto drawn = lines_of(translate({"--sample", "--num-samples", "4", "--seed", "5"}).out);
  REQUIRE(drawn.size() == 12);
  const auto one = lines_of(translate({"--sample", "--seed", "5"}).out);
  CHECK(drawn[0] == one[0]);
  CHECK(drawn[8] == one[2]);
  CHECK(translate({"--sample", "--min-p", "0.999999"}).out == translate({"--beam", "1"}).out);

  const Ended mbr = translate({"--sample", "--num-samples", "8", "--mbr", "chrf"});
  CAPTURE(mbr.err);
  CHECK(mbr.code == 0);
  CHECK(lines_of(mbr.out).size() == 3);
  CHECK(lines_of(translate({"--n-best", "4", "--mbr", "bleu"}).out).size() == 3);
  CHECK(contains(refusal({"--mbr", "chrf"}), "--mbr has nothing to choose from"));
  CHECK(contains(refusal({"--n-best", "2", "--mbr", "ter"}), "--mbr is 'ter', expected chrf or bleu"));

  const auto diverse =
      lines_of(translate({"--beam-groups", "4", "--diversity-penalty", "50", "--n-best", "4"}).out);
  REQUIRE(diverse.size() == 12);
  std::vector<std::string> firsts;
  for (std::size_t i = 0; i < 4; ++i) firsts.push_back(diverse[i].substr(0, diverse[i].find(' ')));
  CHECK(firsts[0] != firsts[1]);
  CHECK(contains(refusal({"--beam-groups", "2"}), "must be above 1 and above 0 together (--beam-groups)"));
  CHECK(translate({"--coverage-penalty", "0.2"}).code == 0);
  CHECK(contains(refusal({"--n-best", "8"}), "num_hypotheses is 8, must be at most beam_size, which is 4"));
  CHECK(contains(refusal({"--scores"}), "scores have no place in output_format text"));
  CHECK(contains(refusal({"--min-p", "0.1"}), "--min-p requires --sample"));
  for (const char* flag : {"--n-best", "--coverage-penalty", "--diversity-penalty"})
    CHECK(contains(refusal({"--sample", flag, "1"}), "excludes"));
  CHECK(run("translator", {"evaluate", "--model", known, "--n-best", "2"}).code == 1);
}

TEST_CASE("a glossary's terms are in the translations, or a message and the record name them") {
  const TinyCorpus corpus;
  const std::string glossary = corpus.folder.write("g", "# terms\ndog\tKatze\nsee\n").string();
  const Ended text = translate({"--glossary", glossary}, "We paint the cat.\nI see the dog.\n");
  CHECK(text.code == 0);
  REQUIRE(lines_of(text.out).size() == 2);
  CHECK(lines_of(text.out)[0] == lines_of(translate({}, "We paint the cat.\n").out)[0]);
  CHECK(contains(lines_of(text.out)[1], "Katze"));
  CHECK(text.err ==
        "translator: line 2 has the term 'see', and its translation does not have 'see'\n");  // not a word of
                                                                                              // it
  const Ended json = translate({"--glossary", glossary, "--glossary-ignore-case", "--output-format", "jsonl"},
                               "We paint the cat.\nThe DOG sees.\n");
  const auto terms = [&](std::size_t line) {
    return nlohmann::json::parse(lines_of(json.out).at(line))
        .at("translations")[0]
        .value("terms", nlohmann::json());
  };
  CHECK(terms(0).is_null());
  CHECK(terms(1).dump() == R"([{"honoured":true,"source":"DOG","targets":["Katze"]}])");
  CHECK(contains(refusal({"--glossary", corpus.folder.write("b", "a\tb\tc\n").string()}),
                 "line 1 has more than one tab"));
}

TEST_CASE("models translate together, where their vocabularies are the same") {
  CHECK(translate({"--model", known}).out == translate({}).out);  // the mean of equal ones
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "3"})).code == 0);
  CHECK(contains(refusal({"--model", corpus.model}), "[ensemble] model 1 has a vocabulary of "));
}

TEST_CASE("calibrate measures confidences, fits them, and translate uses the fit") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "60"})).code == 0);
  std::vector<std::string> arguments = {"calibrate",   "--model",     corpus.model, "--source", corpus.source,
                                        "--reference", corpus.target, "--threads",  "1"};
  const Ended measured = run("translator", arguments);
  CAPTURE(measured.err);
  CHECK(measured.code == 0);
  CHECK(contains(measured.out, "probabilities\nwords\nconfidence      count   mean  right\n"));
  CHECK(contains(measured.out, "ECE"));
  const auto confidences = [&] {
    return run("translator", {"translate", "--model", corpus.model, "--output-format", "jsonl", "--scores"},
               "I see the dog.\n")
        .out;
  };
  const auto before = nlohmann::json::parse(confidences());
  arguments.emplace_back("--save");
  const Ended saved = run("translator", arguments);
  CAPTURE(saved.out);
  REQUIRE(saved.code == 0);
  CHECK(contains(saved.out, "saved in '" + corpus.model));
  const auto after = nlohmann::json::parse(confidences());
  CHECK(after.at("translations")[0].at("text") == before.at("translations")[0].at("text"));
  CHECK(after.at("translations")[0].at("confidence") != before.at("translations")[0].at("confidence"));
  arguments.pop_back();
  CHECK(contains(run("translator", arguments).out, "of confidence.json"));
  corpus.folder.write("model/confidence.json", "{\"slope\": \"steep\"}");
  CHECK(contains(run("translator", arguments).err, "confidence.json': "));
}
