#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "../../../translator/tool/translation/line_progress.hpp"
#include "../../../translator/tool/translation/shard.hpp"
#include "../../../translator/tool/translation/translation_output.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "examples/translator/translator_corpus.hpp"
#include "folders.hpp"
#include "test_tools.hpp"
#include "translator/text/resumable_file.hpp"

using namespace eigenformer::testing;

namespace {

const std::string known = (fixtures_folder() / "translation_model").string();
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
  CHECK(contains(uneven.err, "ends after 2 lines, but '" + longer + "' has more"));
}

TEST_CASE("prefixes, several samples, min-p, minimum Bayes risk, diverse beams, coverage") {
  const std::vector<std::string> prefixed =
      lines_of(translate({"--with-prefix"}, "I see the dog.\tWir\nI see the dog.\nI see the dog.\t\n").out);
  REQUIRE(prefixed.size() == 3);
  CHECK(prefixed[0].rfind("Wir", 0) == 0);
  CHECK(prefixed[1] == lines_of(translate({}).out)[0]);
  CHECK(prefixed[2] == prefixed[1]);

  const auto drawn = lines_of(translate({"--sample", "--n-best", "4", "--seed", "5"}).out);
  REQUIRE(drawn.size() == 12);
  const auto one = lines_of(translate({"--sample", "--seed", "5"}).out);
  CHECK(drawn[0] == one[0]);
  CHECK(drawn[8] == one[2]);
  CHECK(translate({"--sample", "--min-p", "0.999999"}).out == translate({"--beam", "1"}).out);

  const Ended mbr = translate({"--sample", "--n-best", "8", "--mbr", "chrf"});
  CAPTURE(mbr.err);
  CHECK(mbr.code == 0);
  CHECK(lines_of(mbr.out).size() == 3);
  CHECK(lines_of(translate({"--n-best", "4", "--mbr", "bleu"}).out).size() == 3);
  CHECK(contains(refusal({"--mbr", "chrf"}), "--mbr needs several candidates"));
  CHECK(contains(refusal({"--n-best", "2", "--mbr", "ter"}), "--mbr is 'ter', expected chrf or bleu"));

  const auto diverse =
      lines_of(translate({"--beam-groups", "4", "--diversity-penalty", "50", "--n-best", "4"}).out);
  REQUIRE(diverse.size() == 12);
  std::vector<std::string> firsts;
  for (std::size_t i = 0; i < 4; ++i) firsts.push_back(diverse[i].substr(0, diverse[i].find(' ')));
  CHECK(firsts[0] != firsts[1]);
  CHECK(contains(
      refusal({"--beam-groups", "2"}),
      "expected num_beam_groups above 1 with diversity_penalty above 0, or 1 with 0 (--beam-groups)"));
  CHECK(translate({"--coverage-penalty", "0.2"}).code == 0);
  CHECK(contains(refusal({"--n-best", "8"}), "num_hypotheses is 8, must be at most beam_size, which is 4"));
  CHECK(contains(refusal({"--scores"}), "output_format is text, which cannot hold scores"));
  CHECK(contains(refusal({"--min-p", "0.1"}), "--min-p requires --sample"));
  for (const char* flag : {"--word-penalty", "--coverage-penalty", "--diversity-penalty"})
    CHECK(contains(refusal({"--sample", flag, "1"}), "excludes"));
  CHECK(run("translator", {"evaluate", "--model", known, "--n-best", "2"}).code == 1);
}

TEST_CASE("paragraphs are translated sentence by sentence, and their white space stays") {
  const auto texts = lines_of(translate({"--n-best", "2"}, "I see the dog.\nWe paint the cat.\n").out);
  REQUIRE(texts.size() == 4);
  const std::string input = "  I see the dog.  We paint the cat. \n\nI see the dog.\tI see the dog.\n";
  const std::vector<std::string> split = {"--split-sentences", "--language", "en"};
  const Ended ended = translate(split, input);
  CAPTURE(ended.err);
  CHECK(ended.out == "  " + texts[0] + "  " + texts[2] + " \n\n" + texts[0] + "\t" + texts[0] + "\n");
  CHECK(ended.err.empty());
  std::vector<std::string> two = split;
  two.insert(two.end(), {"--n-best", "2"});
  CHECK(lines_of(translate(two, input).out)[1] == "  " + texts[1] + "  " + texts[3] + " ");
  // What is drawn for a line depends on no other line.
  const auto drawn = [&](const std::string& lines) {
    return lines_of(
        translate({"--split-sentences", "--language", "en", "--sample", "--seed", "4"}, lines).out);
  };
  const std::string line = "I see the dog. I see the dog. I see the dog.\n";
  CHECK(drawn(line + line)[1] == drawn("We paint the cat. We paint the cat.\n" + line)[1]);
  CHECK(translate({"--split-sentences"}, input).out == ended.out);
  CHECK(contains(refusal({"--split-sentences", "--language", "english"}), "unknown language 'english'"));
  CHECK(contains(refusal({"--language", "english"}), "unknown language 'english'"));
  CHECK(contains(refusal({"--language", "en", "--no-split-sentences"}), "excludes"));
  CHECK(contains(refusal({"--split-sentences", "--no-split-sentences"}), "excludes"));
}

TEST_CASE("a model of sentences loses none: lines, documents, evaluations") {
  const auto texts = lines_of(translate({}, "I see the dog.\nWe paint the cat.\n").out);
  REQUIRE(texts.size() == 2);
  const std::string line = "I see the dog. We paint the cat.", both = texts[0] + " " + texts[1];
  const Ended ended = translate({}, "I see the dog.\n" + line + "\n\n");
  CHECK(lines_of(ended.out) == std::vector<std::string>{texts[0], both, ""});
  CHECK(ended.err.empty());
  CHECK(translate({"--language", "en"}, line).out == both + "\n");
  CHECK(translate({"--input-format", "html"}, "<p>" + line + "</p>").out == "<p>" + both + "</p>");
  const std::string whole = translate({"--no-split-sentences"}, line).out;
  CHECK(whole != both + "\n");
  CHECK(lines_of(whole).size() == 1);
  CHECK(translate({"--input-format", "html", "--no-split-sentences"}, "<p>" + line + "</p>").out ==
        "<p>" + lines_of(whole)[0] + "</p>");
  // A model of paragraphs gets whole lines, unless sentences are asked for.
  const TemporaryFolder folder;
  const std::string paragraphs = (folder.path() / "paragraphs").string();
  auto loaded = eigenformer::load_model_folder<float>(known);
  loaded.description.text.lines_are_sentences = false;
  eigenformer::save_model_folder(paragraphs, loaded);
  const auto of_paragraphs = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"translate", "--model", paragraphs, "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("translator", arguments, line).out;
  };
  CHECK(of_paragraphs({}) == whole);
  CHECK(of_paragraphs({"--split-sentences"}) == both + "\n");
  const Ended drawn = translate({"--attention", TinyCorpus().folder.path() / "a.safetensors"}, line);
  CHECK(contains(drawn.err, "line 1 was translated in parts; there are no attention weights for it"));

  const TinyCorpus corpus;
  const auto source = corpus.folder.write("s", line + "\n").string(),
             target = corpus.folder.write("t", both + "\n").string();
  const std::vector<std::string> evaluate = {"evaluate", "--model",     known, "--source",
                                             source,     "--reference", target};
  CHECK(contains(run("translator", evaluate).out, "exact match: 100.0 % (1 of 1)"));
  std::vector<std::string> as_json = evaluate;
  as_json.insert(as_json.end(), {"--output-format", "json"});
  const Ended scored = run("translator", as_json);
  REQUIRE(lines_of(scored.out).size() == 1);
  const auto scores = nlohmann::json::parse(scored.out);
  CHECK(scores.at("bleu").at("score").get<double>() == doctest::Approx(100));
  CHECK(scores.at("chrf").at("score").get<double>() == doctest::Approx(100));
  CHECK(scores.at("exact_match").at("correct") == 1);
  CHECK(scores.at("perplexity").get<double>() > 1);
  CHECK(contains(run("translator", evaluate).out, "perplexity of the references: "));
}

TEST_CASE("alignments on standard output, replaced bytes, documents without markup, one writer at a time") {
  const TinyCorpus corpus;
  const std::string out = (corpus.folder.path() / "out.txt").string(),
                    links = (corpus.folder.path() / "links.txt").string();
  CHECK(translate({"--output", out, "--alignment", links}).code == 0);
  const Ended shown = translate({"--output", out, "--alignment", "-"});
  CAPTURE(shown.err);
  CHECK(shown.out == eigenformer::detail::read_text_file(links));
  CHECK(eigenformer::detail::read_text_file(out) == translate({}).out);
  CHECK_FALSE(std::filesystem::exists("-"));
  CHECK(contains(refusal({"--alignment", "-"}), "would both go to standard output; give --output"));
  CHECK(contains(refusal({"--output", out, "--continue", "--alignment", "-"}), "--continue cannot resume"));
  CHECK(contains(refusal({"--output", out, "--soft-alignment", "-", "--alignment", "-"}), "two files"));

  const std::string bad = "I see\xFF the dog.\nWe paint the cat.\n";
  const Ended replaced = translate({"--replace-invalid-utf8"}, bad);
  CHECK(replaced.code == 0);
  CHECK(replaced.out == translate({}, "I see\xEF\xBF\xBD the dog.\nWe paint the cat.\n").out);
  CHECK(contains(replaced.err, "1 line with invalid UTF-8, which was read as U+FFFD"));
  CHECK(translate({}, bad).code == 1);
  CHECK(translate({"--replace-invalid-utf8", "--input-format", "html"}, "<p>a\xFF</p>").code == 0);

  const Ended plain = translate({"--input-format", "xml"}, "I see the dog.");
  CHECK(plain.code == 0);
  CHECK(contains(plain.err, "standard input has no markup; with --input-format xml it is one paragraph"));
  CHECK(translate({"--input-format", "xml"}, "<a>I see the dog.</a>").err.empty());

  // The file that another process writes is not written, whatever the format.
  eigenformer::ResumableFile writing(out);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--input-format", "html"}, {"--alignment", "-"}}) {
    std::vector<std::string> arguments = {"--output", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CHECK(contains(refusal(arguments), "another process is writing it, to '" + out + ".part'"));
  }
}

TEST_CASE("documents keep their tags, lines their placeholders") {
  const std::string dog = lines_of(translate({}).out)[0], cat = lines_of(translate({}).out)[2];
  const Ended html = translate({"--input-format", "html"},
                               "<p>I see the dog.</p>\r\n<p class=a>We paint <b>the cat</b>.<br></p>");
  CAPTURE(html.err);
  REQUIRE(html.code == 0);
  const std::string before = "<p>" + dog + "</p>\r\n<p class=a>";
  CHECK(html.out.starts_with(before));
  CHECK(html.out.ends_with("<br></p>"));
  std::string text = html.out.substr(before.size());
  for (const char* tag : {"<b>", "</b>", "<br></p>"}) {
    REQUIRE(text.find(tag) != std::string::npos);
    text.erase(text.find(tag), std::string(tag).size());
  }
  CHECK(text == cat);
  CHECK(translate({"--input-format", "xml"}, "<a>I see the dog.</a>").out == "<a>" + dog + "</a>");
  const Ended bad = translate({"--input-format", "xml"}, "<a>\n<b></a>");
  CHECK(bad.code == 1);
  CHECK(bad.err.find("line 2, column 4: found </a>, expected </b>") != std::string::npos);
  CHECK(translate({"--input-format", "html"}, "a\xFF").err.find("invalid UTF-8 at byte 2") !=
        std::string::npos);
  CHECK(refusal({"--input-format", "html", "--n-best", "2"}).find("--n-best is for lines") !=
        std::string::npos);

  CHECK(translate({"--protect"}).out == translate({}).out);
  const std::string line = "I see %s and {the} dog.\n";
  CHECK(translate({}, line).out.find("{the}") == std::string::npos);
  const std::string kept = translate({"--protect"}, line).out;
  for (const char* placeholder : {"%s", "{the}"}) {
    CAPTURE(kept);
    REQUIRE(kept.find(placeholder) != std::string::npos);
    CHECK(kept.find(placeholder) == kept.rfind(placeholder));
  }
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
        "translator: line 2 has the term 'see', but its translation does not have 'see'\n");  // not a word of
                                                                                              // it
  const std::string missed = "the term 'see', but its translation does not have 'see'\n";
  const Ended split = translate({"--glossary", glossary, "--split-sentences", "--language", "en"},
                                "We paint the cat. I see the dog. We paint the cat.\n");
  CHECK(split.err == "translator: line 1 has " + missed);
  const Ended html =
      translate({"--glossary", glossary, "--input-format", "html"}, "<p>I see the <b>dog</b>.</p>\n");
  CHECK(html.err == "translator: the document has " + missed);
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
  CHECK(contains(run("translator", arguments).out, "from confidence.json"));
  corpus.folder.write("model/confidence.json", "{\"slope\": \"steep\"}");
  CHECK(contains(run("translator", arguments).err, "confidence.json': "));
}

namespace {

/// A few hundred lines that all differ.
std::string many_lines(int n) {
  const std::vector<std::string> words = {"dog", "cat", "house", "bread", "lamp"};
  std::string text;
  for (int i = 0; i < n; ++i) {
    text += "I see the " + words[static_cast<std::size_t>(i % 5)];
    for (int k = 0; k < i % 7; ++k) text += " and the " + words[static_cast<std::size_t>((i / 7 + k) % 5)];
    text += ".\n";
  }
  return text;
}

std::vector<eigenformer::Compression> compressions() {
  namespace ef = eigenformer;
  std::vector<ef::Compression> all;
  if (ef::detail::find_linked<ef::detail::GzipFunctions>() != nullptr) all.push_back(ef::Compression::gzip);
  if (ef::detail::find_linked<ef::detail::ZstdFunctions>() != nullptr) all.push_back(ef::Compression::zstd);
  return all;
}

}  // namespace

TEST_CASE("compressed files in, by their content, and out, by their names") {
  const TinyCorpus corpus;
  const std::string expected = translate({}).out, out = (corpus.folder.path() / "out").string();
  for (const auto kind : compressions()) {
    CAPTURE(eigenformer::detail::compression_name(kind));
    const std::string packed = eigenformer::compress(kind, two_lines);
    const std::string suffix = kind == eigenformer::Compression::gzip ? ".gz" : ".zst";
    const std::string input = corpus.folder.write("input", packed).string();
    const Ended ended = translate({"--input", input, "--output", out + suffix});
    CAPTURE(ended.err);
    CHECK(ended.code == 0);
    CHECK(eigenformer::detail::compression_of_content(read_file(out + suffix)) == kind);
    CHECK(eigenformer::decompress(read_file(out + suffix), "out") == expected);
    CHECK(translate({}, packed).out == expected);
    // Nothing in: a file that is there, and compressed.
    CHECK(translate({"--output", out + suffix}, "").code == 0);
    CHECK(eigenformer::decompress(read_file(out + suffix), "out").empty());
    CHECK(read_file(out + suffix).size() > 4);
    corpus.folder.write("input", packed.substr(0, packed.size() - 3));
    CHECK(contains(refusal({"--input", input}), "the file is truncated"));
    const std::string score = (corpus.folder.path() / ("scores" + suffix)).string();
    corpus.folder.write("input", packed);
    REQUIRE(run("translator",
                {"score", "--model", known, "--source", input, "--target", input, "--output", score})
                .code == 0);
    CHECK(lines_of(eigenformer::decompress(read_file(score), "scores")).size() == 3);
  }
}

TEST_CASE("shards: joined in order, their outputs are the whole one") {
  const TinyCorpus corpus;
  std::string text = "\xEF\xBB\xBF" + many_lines(23);
  text.pop_back();  // no line end at the end
  const std::vector<std::string> drawing = {"--sample", "--seed", "5", "--output-format", "tsv", "--scores"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), drawing.begin(), drawing.end());
    const Ended ended = translate(more);
    CAPTURE(ended.err);
    CHECK(ended.code == 0);
    return ended.out;
  };
  std::vector<std::string> inputs = {corpus.folder.write("plain", text).string()};
  for (const auto kind : compressions()) {
    inputs.push_back(
        corpus.folder.write(eigenformer::detail::compression_name(kind), eigenformer::compress(kind, text))
            .string());
  }
  const std::string whole = with({"--input", inputs[0]});
  REQUIRE(lines_of(whole).size() == 24);
  for (const std::string& input : inputs) {
    for (const int n : {1, 4, 40}) {
      CAPTURE(n);
      std::string joined;
      for (int i = 1; i <= n; ++i)
        joined += with({"--input", input, "--shard", std::to_string(i) + "/" + std::to_string(n)});
      CHECK(joined == whole);
      if (input != inputs[0]) break;
    }
  }
  for (const char* bad : {"0/3", "4/3", "3", "1/0", "a/b", "1/3x", "-1/3", "1/10000000", " 1/3"})
    CHECK(contains(refusal({"--input", inputs[0], "--shard", bad}), "expected i/n, such as 1/8"));
  CHECK(contains(refusal({"--shard", "1/3"}), "--shard needs --input"));
  CHECK(contains(refusal({"--input", "/dev/null", "--shard", "1/3"}), "--shard needs a regular file"));
}

TEST_CASE("a run that is killed goes on where it was, and ends with the bytes of one that was not") {
  namespace fs = std::filesystem;
  const TinyCorpus corpus;
  const std::string text = many_lines(400), input = corpus.folder.write("in", text).string();
  std::vector<std::string> names = {"out"};
  for (const auto kind : compressions())
    names.push_back(kind == eigenformer::Compression::gzip ? "out.gz" : "out.zst");
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string out = (corpus.folder.path() / name).string(),
                      whole = (corpus.folder.path() / ("whole-" + name)).string();
    const auto arguments = [&](const std::string& to, std::vector<std::string> more = {}) {
      more.insert(more.begin(),
                  {"translate", "--model", known, "--threads", "1", "--input", input, "--output", to,
                   "--batch-size", "1", "--sample", "--seed", "3", "--output-format", "tsv"});
      if (name == "out")
        more.insert(more.end(), {"--alignment", to + ".words", "--soft-alignment", to + ".weights"});
      return more;
    };
    REQUIRE(run("translator", arguments(whole)).code == 0);
    int kills = 0;
    for (int attempt = 0; attempt < 4; ++attempt) {
      const bool had = fs::exists(out + ".part.state");
      const std::string before = had ? read_file(out + ".part.state") : "";
      Program program("translator", arguments(out, {"--continue"}));
      // Killed some moments after it has noted that it came further.
      for (int i = 0; i < 6000 && !fs::exists(out); ++i) {
        if (fs::exists(out + ".part.state") && read_file(out + ".part.state") != before) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(7 * attempt));
      program.signal(attempt == 2 ? SIGTERM : SIGKILL);
      const Ended ended = program.wait();
      if (ended.code == 0) break;  // it was faster
      ++kills;
      CHECK(ended.code == (attempt == 2 ? 130 : 1000 + SIGKILL));
      if (attempt == 2) CHECK(contains(ended.err, "to resume, repeat the command with --continue"));
      CHECK_FALSE(fs::exists(out));
      REQUIRE(fs::exists(out + ".part.state"));
    }
    CHECK(kills > 0);
    if (name == "out" && kills > 0 && !fs::exists(out)) {
      const auto refused = [&](std::vector<std::string> call, const std::string& why) {
        const Ended ended = run("translator", call);
        CAPTURE(ended.err);
        CHECK(ended.code == 1);
        CHECK(contains(ended.err, why));
      };
      refused(arguments(out), "holds the translations of an interrupted run; give --continue");
      std::vector<std::string> other = arguments(out, {"--continue"});
      *std::find(other.begin(), other.end(), "3") = "4";
      refused(other, "--seed was '3' and is '4'");
      refused(arguments(out, {"--continue", "--top-k", "5"}), "--top-k was not given and is '5'");
      corpus.folder.write("in", "We" + text.substr(1));
      refused(arguments(out, {"--continue"}),
              "has changed in lines that the interrupted run has already translated");
      corpus.folder.write("in", text);
      fs::copy(known, corpus.folder.path() / "copy", fs::copy_options::recursive);
      other = arguments(out, {"--continue"});
      other[2] = (corpus.folder.path() / "copy").string();
      corpus.folder.write("copy/confidence.json", "{\"slope\": 1.5, \"offset\": 0}");
      refused(other, "the model's file confidence.json has changed");
    }
    const Ended last = run("translator", arguments(out, {"--continue"}));
    CAPTURE(last.err);
    CHECK(last.code == 0);
    for (const char* end : {"", ".words", ".weights"}) {
      CAPTURE(end);
      CHECK(read_file(out + end) == read_file(whole + end));
      CHECK_FALSE(fs::exists(out + end + ".part"));
      CHECK_FALSE(fs::exists(out + end + ".part.state"));
    }
    if (name == "out") CHECK(lines_of(read_file(out + ".words")).size() == 400);
  }
}

TEST_CASE("what stands before a bad line is kept, and the mended file goes on") {
  const TinyCorpus corpus;
  const std::string good = many_lines(70), bad = good + "I see \xFF\n",
                    out = (corpus.folder.path() / "out").string();
  const std::string input = corpus.folder.write("in", bad).string();
  const std::vector<std::string> call = {"--input",      input, "--output",  out,
                                         "--batch-size", "1",   "--continue"};
  const Ended ended = translate(call);
  CAPTURE(ended.err);
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "invalid UTF-8 in line 71 of"));
  CHECK(contains(ended.err, "to resume, repeat the command with --continue"));
  CHECK_FALSE(std::filesystem::exists(out));
  corpus.folder.write("in", good + "I see the dog.\n");
  const Ended mended = translate(call);
  CAPTURE(mended.err);
  CHECK(contains(mended.err, "resuming after 64 lines"));
  CHECK(read_file(out) == translate({}, good + "I see the dog.\n").out);
  // What the results so far belong to must be there.
  corpus.folder.write("in", bad);
  std::filesystem::remove(out);
  const std::string words = (corpus.folder.path() / "words").string();
  std::vector<std::string> aligned = call;
  aligned.insert(aligned.end(), {"--alignment", words});
  CHECK(translate(aligned).code == 1);
  CHECK(lines_of(read_file(words + ".part")).size() == 64);
  std::filesystem::remove(words + ".part");
  CHECK(contains(translate(aligned).err, "cannot resume: '" + words + ".part'"));
  CHECK(contains(refusal({"--continue"}), "--continue requires --output"));
  CHECK(contains(refusal({"--continue", "--output", "/dev/null"}), "needs a regular file"));
}

TEST_CASE("a run that failed after some alignments of a chunk goes on without writing them twice") {
  TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string(), words = (folder.path() / "words").string();
  const auto translated = [](const char* text) {
    eigenformer::Translation t;
    eigenformer::TextAlignment alignment{.source = {{0, 1}}, .target = {{0, 1}}, .links = {{0, 0}}};
    t.text = text;
    t.alignment = std::make_shared<const eigenformer::TextAlignment>(std::move(alignment));
    return t;
  };
  {
    translator::AlignmentFiles alignments(words, "");
    translator::TranslationOutput output(out, alignments, {{"run", "1"}}, true);
    alignments.add("a", translated("A"));
    output.write("A\n");
    output.reached({.lines = 1, .offset = 2, .hash = 1});
    alignments.add("b", translated("B"));  // and then no more room for the results
    CHECK(output.keep());
  }
  translator::AlignmentFiles alignments(words, "");
  translator::TranslationOutput output(out, alignments, {{"run", "1"}}, true);
  REQUIRE(output.begin().has_value());
  CHECK(output.begin()->lines == 1);
  alignments.add("b", translated("B"));
  output.write("B\n");
  output.reached({.lines = 2, .offset = 4, .hash = 2});
  output.finish();
  alignments.finish();
  CHECK(read_file(out) == "A\nB\n");
  CHECK(read_file(words) == "0-0\n0-0\n");
}

TEST_CASE("progress is shown on a terminal and nowhere else") {
  const translator::LineProgress progress(400, 100, false);
  CHECK(progress.text(200, 50) == "line 200/400  0 tokens/s  ETA 1:40");
  CHECK(progress.text(100, 50) == "line 100/400  0 tokens/s");
  CHECK(translator::LineProgress(std::nullopt, 0, false).text(7, 2) == "line 7  0 tokens/s");

  const TinyCorpus corpus;
  const std::string input = corpus.folder.write("in", many_lines(70)).string(),
                    out = (corpus.folder.path() / "out").string();
  const std::vector<std::string> call = {"translate", "--model", known,          "--input", input,
                                         "--output",  out,       "--batch-size", "1"};
  CHECK(run("translator", call).err.empty());
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  // Open on this side too, so that what was written stays when the program ends.
  const int other_side = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(other_side >= 0);
  CHECK(Program("translator", call, "", {.err = ::ptsname(terminal)}).wait().code == 0);
  std::string shown(4096, '\0');
  const ssize_t n = ::read(terminal, shown.data(), shown.size());
  shown.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  ::close(other_side);
  ::close(terminal);
  CAPTURE(shown);
  CHECK(contains(shown, "\r\033[Kline 32/70  "));
  CHECK(contains(shown, " tokens/s  ETA 0:"));
  CHECK_FALSE(contains(shown, " 0 tokens/s"));
  CHECK(contains(shown, "line 70/70"));
}

TEST_CASE("shards cover all bytes, without overflow") {
  using translator::Shard;
  constexpr std::uint64_t huge = std::uint64_t{1} << 62;
  const Shard last = Shard::parse("1000000/1000000"), middle = Shard::parse("500001/1000000");
  CHECK(middle.begin(huge) == huge / 2);
  CHECK(last.begin(huge) < huge);
  CHECK(last.begin(huge) == Shard::parse("999999/1000000").end(huge));
  CHECK(Shard::parse("1/3").begin(10) == 0);
  CHECK(Shard::parse("2/3").begin(10) == 3);
  CHECK(Shard::parse("2/3").end(10) == 6);
  CHECK(Shard::parse("3/3").end(10) > 10);
}
