#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/chrf.hpp"
#include "eigenformer/metrics/pairwise.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

using Strings = std::vector<std::string>;

namespace {

/// A small corpus, and what sacreBLEU 2.6.0 says of it (BLEU().corpus_score and CHRF().corpus_score with
/// their defaults).
struct Case {
  const char* name;
  Strings hypotheses;
  Strings references;
  double bleu;
  std::array<double, 4> precisions;
  std::array<index_t, 4> correct;
  std::array<index_t, 4> total;
  double brevity_penalty;
  index_t hypothesis_length;
  index_t reference_length;
  double chrf;
};

const std::vector<Case> cases = {
    {"plain",
     {"The cat sat on the mat.", "There is a house in the old town.", "He does not like it."},
     {"The cat is sitting on the mat.", "There is an old house in the town.", "He did not like that."},
     26.128140627128207,
     {81.81818181818181, 47.36842105263158, 18.75, 7.6923076923076925},
     {18, 9, 3, 1},
     {22, 19, 16, 13},
     0.9555630362682843,
     22,
     23,
     54.41938768366384},
    {"punctuation and numbers",
     {"It costs 1,234.50 dollars (about 3.5%), \"not more\"!",
      "Version 2.0-beta: 10-15 items, e.g. A/B; C&D.", "\"Nein\", sagte er... \"doch\"?",
      "3.14,2.71 -5 5- x-ray 1.a a.1"},
     {"It costs 1,234.5 dollars (about 3.5 %), 'not more'!",
      "Version 2.0-beta: 10 - 15 items, e.g., A/B; C & D.", "\"Nein\", sagte sie ... \"doch\"!",
      "3.14, 2.71 -5 5 - x-ray 1.a a.1"},
     74.05710789676425,
     {86.88524590163935, 78.94736842105263, 71.69811320754717, 65.3061224489796},
     {53, 45, 38, 32},
     {61, 57, 53, 49},
     0.9837401985812029,
     61,
     62,
     85.27627644253214},
    {"html entities",
     {"&quot;Fish &amp; chips&quot; cost &lt; 5 &gt; 3 <skipped>today", "A &amp;lt; B", "x&y &nbsp; z"},
     {"\"Fish & chips\" cost < 5 > 3 today", "A < B", "x & y &nbsp; z"},
     100.00000000000004,
     {100.0, 100.0, 100.0, 100.0},
     {21, 18, 15, 12},
     {21, 18, 15, 12},
     1.0,
     21,
     21,
     44.45817210507473},
    {"an empty hypothesis",
     {"", "Die Frau sieht den Hund."},
     {"Der Mann schläft heute.", "Die Frau sieht heute den kleinen Hund."},
     12.382493441148561,
     {100.0, 60.0, 25.0, 16.666666666666668},
     {6, 3, 1, 0},
     {6, 5, 4, 3},
     0.31140322391459774,
     6,
     13,
     34.772461119459905},
    {"non-ASCII",
     {"Schöne Grüße aus Köln – „bis bald“!", "Привет, мир. 3,5 км", "東京は 大きい。", "a\u00A0b\u2003c d"},
     {"Viele Grüße aus Köln – „bis dann“!", "Привет мир! 3,5 км", "東京は とても 大きい。", "a b c d e"},
     46.18140586009894,
     {80.0, 50.0, 41.666666666666664, 33.333333333333336},
     {16, 8, 5, 3},
     {20, 16, 12, 9},
     0.951229424500714,
     20,
     21,
     56.45283912199399},
    {"no common 4-gram",
     {"the dog runs fast today", "a red car"},
     {"the dog is running", "a blue car is here"},
     16.763815976519318,
     {50.0, 16.666666666666668, 12.5, 12.5},
     {4, 1, 0, 0},
     {8, 6, 4, 2},
     0.8824969025845955,
     8,
     9,
     24.57404329418334},
    {"nothing in common",
     {"alpha beta gamma delta epsilon"},
     {"one two three four five"},
     0.0,
     {0.0, 0.0, 0.0, 0.0},
     {0, 0, 0, 0},
     {5, 4, 3, 2},
     1.0,
     5,
     5,
     9.07121262136431},
    {"too short for 4-grams",
     {"Ja.", "Nein"},
     {"Ja.", "Nein!"},
     0.0,
     {100.0, 100.0, 0.0, 0.0},
     {3, 1, 0, 0},
     {3, 1, 0, 0},
     0.7165313105737893,
     3,
     4,
     78.02197802197803},
    {"longer than the reference",
     {"the the the the the the the the the the", "a b c d e f g h"},
     {"the cat is on the mat", "a b c d"},
     16.51582159006904,
     {33.333333333333336, 18.75, 14.285714285714286, 8.333333333333334},
     {6, 3, 2, 1},
     {18, 16, 14, 12},
     1.0,
     18,
     10,
     18.2354856111726},
    {"edge spaces and line ends",
     {"  Heute gibt der Lehrer dem Kind einen roten Apfel. \n", "semi-\nfinal and well-\nknown"},
     {"Heute gibt der Lehrer dem Kind einen Apfel.", "semifinal and wellknown"},
     73.23852725998857,
     {92.3076923076923, 81.81818181818181, 66.66666666666667, 57.142857142857146},
     {12, 9, 6, 4},
     {13, 11, 9, 7},
     1.0,
     13,
     12,
     85.88628170273834},
    {"short words",
     {"a", "bb ccc", "", "dd ee"},
     {"a", "bb ccd", "x", ""},
     0.0,
     {40.0, 25.0, 0.0, 0.0},
     {2, 0, 0, 0},
     {5, 2, 0, 0},
     1.0,
     5,
     4,
     53.07860262008733}};

}  // namespace

TEST_CASE("bleu: score and parts are sacreBLEU's") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const BleuScore bleu = corpus_bleu(c.hypotheses, c.references);
    CHECK(bleu.score == doctest::Approx(c.bleu).epsilon(1e-10));
    for (std::size_t n = 0; n < 4; ++n) {
      CAPTURE(n);
      CHECK(bleu.precisions[n] == doctest::Approx(c.precisions[n]).epsilon(1e-10));
      CHECK(bleu.correct[n] == c.correct[n]);
      CHECK(bleu.total[n] == c.total[n]);
    }
    CHECK(bleu.brevity_penalty == doctest::Approx(c.brevity_penalty).epsilon(1e-10));
    CHECK(bleu.hypothesis_length == c.hypothesis_length);
    CHECK(bleu.reference_length == c.reference_length);
    CHECK(bleu.ratio == doctest::Approx(static_cast<double>(c.hypothesis_length) /
                                        static_cast<double>(c.reference_length)));
  }
}

TEST_CASE("chrf: the score is sacreBLEU's") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(corpus_chrf(c.hypotheses, c.references) == doctest::Approx(c.chrf).epsilon(1e-10));
  }
}

TEST_CASE("bleu: tokenization 13a") {
  CHECK(detail::tokenize_13a("Hello, world! (1,234.50)") ==
        Strings{"Hello", ",", "world", "!", "(", "1,234.50", ")"});
  CHECK(detail::tokenize_13a("don't x-ray 10-15 a.b 3.") ==
        Strings{"don't", "x-ray", "10", "-", "15", "a", ".", "b", "3", "."});
  CHECK(detail::tokenize_13a("&quot;a&amp;b&quot; &lt;") == Strings{"\"", "a", "&", "b", "\"", "<"});
  CHECK(detail::tokenize_13a("„Schön…“") == Strings{"„Schön…“"});
  CHECK(detail::tokenize_13a(" \n") == Strings{});
}

TEST_CASE("bleu: white space at the end, of any kind, is removed before line breaks are joined") {
  // sacrebleu.metrics.BLEU().tokenizer of text.rstrip(), joined by "|".
  const auto tokens = [](std::string_view text) {
    std::string all;
    for (const std::string& token : detail::tokenize_13a(text)) all += (all.empty() ? "" : "|") + token;
    return all;
  };
  CHECK(tokens("a-\n") == "a-");
  CHECK(tokens("a-\n \u2028") == "a-");
  CHECK(tokens("a-\n\u00A0\x1C") == "a-");
  CHECK(tokens("5-6 a-\nb") == "5|-|6|ab");
  CHECK(tokens("\u00A0").empty());
}

TEST_CASE(
    "bleu: languages without spaces between words are split into characters, as sacreBLEU's char does") {
  // sacrebleu.metrics.BLEU(tokenize="char") of sacreBLEU 2.6.0.
  const Strings chinese = {"我喜欢在公园里读书。", "他 们 昨天去了 GPT-2 北京。", "这是一只猫"};
  const BleuScore bleu =
      corpus_bleu(chinese, Strings{"我喜欢在公园看书。", "他们昨天去北京了。", "那是一只小猫。"});
  CHECK(bleu.score == doctest::Approx(42.12339486872582).epsilon(1e-12));
  CHECK(bleu.hypothesis_length == 29);
  CHECK(bleu.reference_length == 25);
  CHECK(contains(bleu.signature(), "|tok:char|"));
  CHECK(corpus_bleu(Strings{"私は公園で本を読むのが好きです。"}, Strings{"私は公園で読書をするのが好きだ。"})
            .score == doctest::Approx(42.044820762685724).epsilon(1e-12));
  CHECK(corpus_bleu(Strings{"ฉันชอบอ่านหนังสือในสวนสาธารณะ"}, Strings{"ฉันชอบอ่านหนังสือที่สวน"}).score ==
        doctest::Approx(61.32878268086122).epsilon(1e-12));
  CHECK(sentence_bleu("我爱你", "我想你") == doctest::Approx(34.66806371753173).epsilon(1e-12));
  // Korean has spaces: its words are those of 13a, as are those of text with few such characters.
  const BleuScore korean = corpus_bleu(Strings{"나는 공원에서 책을 읽는 것을 좋아한다."},
                                       Strings{"나는 공원에서 책 읽는 것을 좋아한다."});
  CHECK(korean.score == doctest::Approx(48.892302243490086).epsilon(1e-12));
  CHECK(!korean.characters);
  CHECK(!corpus_bleu(Strings{"Tokyo is 東京"}, Strings{"Tokyo is 東京"}).characters);
}

TEST_CASE("bleu: signature and line as sacreBLEU writes them") {
  CHECK(
      contains(BleuScore().signature(), "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:eigenformer-"));
  CHECK(contains(chrf_signature(), "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:eigenformer-"));
  CHECK(corpus_bleu(cases[0].hypotheses, cases[0].references).str() ==
        "BLEU = 26.13 81.8/47.4/18.8/7.7 (BP = 0.956 ratio = 0.957 hyp_len = 22 ref_len = 23)");
}

TEST_CASE("bleu: empty sentences on both sides are no error") {
  const Strings empty = {"", " "};
  CHECK(corpus_bleu(empty, empty).score == 0);
  CHECK(corpus_chrf(empty, empty) == 0);
}

TEST_CASE("bleu: unequal and zero numbers of sentences are refused") {
  const Strings one = {"a"}, two = {"a", "b"}, none;
  CHECK(contains(message_of<ValueError>([&] { corpus_bleu(one, two); }),
                 "[corpus_bleu] 1 hypotheses and 2 references"));
  CHECK(contains(message_of<ValueError>([&] { corpus_bleu(none, none); }), "no hypotheses"));
  CHECK(contains(message_of<ValueError>([&] { corpus_chrf(two, one); }),
                 "[corpus_chrf] 2 hypotheses and 1 references"));
}

TEST_CASE("a line of 100,000 entities is read in one pass, and so are its n-grams") {
  std::string entities, quotes;
  for (int i = 0; i < 100000; ++i) {
    entities += "a&quot;";
    quotes += "a\"";
  }
  // Replaced in place, each of them would move the rest of the line: 35 GB.
  const BleuScore bleu = corpus_bleu(Strings{entities}, Strings{quotes});
  CHECK(bleu.score == doctest::Approx(100));
  CHECK(bleu.hypothesis_length == 200000);
  CHECK(detail::tokenize_13a("a-\nb <skipped><skip<skipped>ped> &amp;lt; -\n-\n") ==
        Strings{"ab", "<", "skipped", ">", "<", "-"});
  std::string text;
  for (int i = 0; i < 30000; ++i) text += static_cast<char>('a' + i % 23);
  CHECK(corpus_chrf(Strings{text}, Strings{text + "zzzzzzzz"}) > 99.9);
}
