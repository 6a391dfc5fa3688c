// check_marian FOLDER: small models that Marian made, imported, against Marian's own outputs. The folder has
// a folder for each model; its files, unpacked, are named <precision>[.lex].<search>.<kind>: see
// tests/students/check_marian.sh, which runs this.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/shortlist.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/io.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "translator/text/word_alignments.hpp"

namespace {

namespace fs = std::filesystem;
namespace ef = eigenformer;
using Ids = std::vector<std::int32_t>;
using Model = ef::Seq2SeqTransformer<float>;

/// One model as it runs: parameters, or packed weights.
struct Student {
  std::shared_ptr<ef::TranslationModel<float>> plain;
  std::shared_ptr<ef::PackedModel<Model>> packed;

  const ef::TranslationModel<float>& loaded() const { return plain ? *plain : packed->loaded; }
  ef::Context<float> context() const { return plain ? ef::Context<float>::inference() : packed->context(); }
};

struct Expected {
  std::string pieces;
  double log_probability = 0, score = 0;
};

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> found;
  for (std::size_t at = 0;;) {
    const std::size_t end = line.find(" ||| ", at);
    found.push_back(line.substr(at, end == std::string::npos ? end : end - at));
    if (end == std::string::npos) return found;
    at = end + 5;
  }
}

/// The entries of each line of the input.
std::map<int, std::vector<Expected>> read_lists(const fs::path& path) {
  std::map<int, std::vector<Expected>> lists;
  for (const std::string& line : ef::split_lines(ef::detail::read_text_file(path), path.string())) {
    const auto f = fields(line);
    if (f.size() < 4) throw ef::IoError("check", {"'", path.string(), "' has an odd line: ", line});
    Expected e;
    e.pieces = f[1];
    for (const std::string& field : f) {
      const std::size_t at = field.find("F0= ");
      if (at != std::string::npos) e.log_probability = std::stod(field.substr(at + 4));
    }
    e.score = std::stod(f.back());
    lists[std::stoi(f[0])].push_back(e);
  }
  return lists;
}

std::string pieces_of(const ef::Tokenizer& tokenizer, const ef::Hypothesis& hypothesis) {
  std::string text;
  for (const std::int32_t id : hypothesis.ids) text += (text.empty() ? "" : " ") + tokenizer.token(id);
  if (hypothesis.finished) text += text.empty() ? "</s>" : " </s>";
  return text;
}

std::string stripped(std::string text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

/// How a file's name says that its search went.
struct Search {
  std::string name;
  ef::index_t beam = 1;
  double normalize = 0, factor = 3;
  double word_penalty = 0;
};
const Search searches[] = {{"b1.pieces", 1, 0, 3, 0},
                           {"b4n0.nbest", 4, 0, 3, 0},
                           {"b4n1.nbest", 4, 1, 3, 0},
                           {"b4n06wp.nbest", 4, 0.6, 3, 0.4},
                           {"b4n1.short.nbest", 4, 1, 0.5, 0}};

/// Runs one search on all lines, one at a time as Marian did; false where it differs by more than allowed.
bool check(const fs::path& folder, const Student& student, const std::string& precision, const Search& search,
           int lists_allowed, double tolerance, const std::shared_ptr<const ef::Shortlist>& shortlist = {}) {
  const fs::path path = folder / (precision + (shortlist ? ".lex." : ".") + search.name);
  if (!fs::exists(path)) return true;
  const auto expected = read_lists(path);
  const auto& loaded = student.loaded();
  const auto lines =
      ef::split_lines(ef::detail::read_text_file(folder.parent_path() / "input.en"), "input.en");
  const auto ids_lines = ef::split_lines(ef::detail::read_text_file(folder / "input.ids"), "input.ids");
  int same = 0, other_words = 0, other_scores = 0, cut_ids = 0;
  double worst = 0;
  for (const auto& [number, list] : expected) {
    const std::string& line = lines.at(static_cast<std::size_t>(number));
    const Ids source = ef::source_ids(loaded.description.text, *loaded.tokenizers.source, line, 1000);
    if (source.empty()) continue;
    Ids given;
    std::istringstream in(ids_lines.at(static_cast<std::size_t>(number)));
    for (std::int32_t id = 0; in >> id;) given.push_back(id);
    given.push_back(0);
    cut_ids += given == source ? 0 : 1;
    ef::SearchOptions options = ef::search_options(loaded.description.text);
    options.beam_size = search.beam;
    options.length_penalty = search.normalize;
    options.num_hypotheses = static_cast<ef::index_t>(list.size());
    options.max_length_factor = search.factor;
    options.word_penalty = search.word_penalty;
    options.shortlist = shortlist;
    const std::vector<Ids> inputs = {given};
    const auto found = ef::generate(loaded.model, student.context(), inputs, options).front();
    bool words = found.size() == list.size(), scores = true;
    for (std::size_t i = 0; words && i < list.size(); ++i) {
      words = stripped(list[i].pieces) == pieces_of(*loaded.tokenizers.target, found[i]);
      const double off = std::abs(found[i].log_probability - list[i].log_probability) /
                         std::max(1.0, std::abs(list[i].log_probability));
      if (words) worst = std::max(worst, off);
      scores = scores && off <= tolerance;
    }
    if (!words) {
      ++other_words;
    } else if (!scores) {
      ++other_scores;
    } else {
      ++same;
    }
  }
  const bool good = other_words <= lists_allowed && cut_ids == 0 && (lists_allowed > 0 || other_scores == 0);
  std::printf("%s %s/%s: %d lists the same, %d other scores (worst %.1e), %d other words%s\n",
              good ? "ok  " : "FAIL", folder.filename().c_str(), path.filename().c_str(), same, other_scores,
              worst, other_words, cut_ids > 0 ? ", TOKENS DIFFER" : "");
  return good;
}

/// Compares the alignments of pieces, and the weights that they are made of, with Marian's, which are of head
/// 0 of the last layer. Lines whose texts differ do not count, and must be few.
bool check_alignments(const fs::path& folder, const Student& student, const std::string& search,
                      ef::index_t beam) {
  const auto read = [&](const char* kind) {
    const fs::path path = folder / ("float32." + search + "." + kind);
    return fs::exists(path) ? ef::split_lines(ef::detail::read_text_file(path), path.string())
                            : std::vector<std::string>{};
  };
  const auto lines =
      ef::split_lines(ef::detail::read_text_file(folder.parent_path() / "input.en"), "input.en");
  bool good = true;
  const std::vector<std::string> soft = read("soft");
  for (const auto& [kind, threshold] : {std::pair("hard", 0.0), std::pair("align02", 0.2)}) {
    const std::vector<std::string> expected = read(kind);
    if (expected.empty()) continue;
    ef::TextTranslatorOptions options = ef::text_translator_options(student.loaded().description);
    options.search.beam_size = beam;
    options.search.length_penalty = beam == 1 ? 0 : 1;
    options.search.max_length_factor = 3;
    options.alignment = ef::AlignmentOptions{.layer = -1, .head = 0, .threshold = threshold};
    const ef::TextTranslator<Model> translator(student.loaded(), options, student.context());
    int same = 0, other_links = 0, other_texts = 0;
    double worst = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const ef::Translation t = translator.translate(lines[i]);
      if (t.alignment == nullptr) continue;
      const auto f = fields(expected.at(i));
      std::vector<ef::AlignmentLink> links;
      for (const auto& [s, target] : t.alignment->links) links.push_back({s, target});
      std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) {
        return std::pair(a.source, a.target) < std::pair(b.source, b.target);
      });
      if (f.at(0) != t.text) {
        ++other_texts;
        continue;
      }
      (ef::alignment_text(links) == f.at(1) ? same : other_links) += 1;
      if (soft.empty()) continue;
      std::string weights = fields(soft.at(i)).at(1);
      std::replace(weights.begin(), weights.end(), ',', ' ');
      std::istringstream in(weights);
      for (const float w : t.alignment->attention.span()) {
        double marian = -1;
        in >> marian;
        worst = std::max(worst, std::abs(static_cast<double>(w) - marian));
      }
    }
    // Unusual letters are spelled otherwise in Marian's texts of some lines.
    const bool fits = other_links == 0 && other_texts <= 2 && worst < 1e-4;
    std::printf(
        "%s %s/float32.%s.%s: %d alignments the same, %d others, %d other texts, weights within %.1e\n",
        fits ? "ok  " : "FAIL", folder.filename().c_str(), search.c_str(), kind, same, other_links,
        other_texts, worst);
    good = good && fits;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "check_marian FOLDER: the folder of models and outputs, unpacked\n");
    return 2;
  }
  bool good = true;
  for (const std::string name : {"ssru"}) {
    const fs::path folder = fs::path(argv[1]) / name;
    if (!fs::exists(folder)) throw ef::IoError("check", {"'", folder.string(), "' does not exist"});
    for (const auto& [precision, file] : std::vector<std::pair<std::string, std::string>>{
             {"float32", "model.bin"},
             {"int8", "model.intgemm.bin"},
             {"int8shiftAlphaAll", "model.intgemm.alphas.bin"}}) {
      if (!fs::exists(folder / file)) continue;
      Student student;
      if (precision == "float32") {
        student.plain = std::make_shared<ef::TranslationModel<float>>(ef::import_marian(folder / file));
      } else {
        student.packed = std::make_shared<ef::PackedModel<Model>>(ef::import_marian_int8(folder / file));
      }
      std::shared_ptr<const ef::Shortlist> shortlist;
      if (fs::exists(folder / "lex.s2t.bin")) {
        const auto read = ef::Shortlist::load(folder / "lex.s2t.bin");
        shortlist =
            std::make_shared<const ef::Shortlist>(read.with_source_ids(student.loaded().tokenizers.joint()));
      }
      if (precision == "float32") {
        good = check_alignments(folder, student, "b1", 1) && good;
        good = check_alignments(folder, student, "b4n1", 4) && good;
      }
      for (const Search& search : searches) {
        // Without numbers of the inputs Marian has one scale for all rows of a product, and we one for each:
        // the words of most lines are the same, n-best lists are others.
        const bool dynamic = precision == "int8";
        if (dynamic && search.beam > 1) continue;
        const bool exact = precision == "float32";
        const int allowed = exact ? 0 : dynamic ? 8 : 3;
        const double tolerance = exact ? 1e-5 : 0.015;
        good = check(folder, student, precision, search, allowed, tolerance) && good;
        if (shortlist)
          good = check(folder, student, precision, search, allowed, tolerance, shortlist) && good;
      }
    }
  }
  return good ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "check_marian: %s\n", error.what());
  return 2;
}
