#include "translator/server/api/detect.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

namespace {

enum class Script { latin, greek, cyrillic, hebrew, arabic, devanagari, thai, hangul, kana, han, other };

Script script_of_letter(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (in('A', 'Z') || in('a', 'z') || in(0xC0, 0x24F) || in(0x1E00, 0x1EFF)) return Script::latin;
  if (in(0x370, 0x3FF)) return Script::greek;
  if (in(0x400, 0x52F)) return Script::cyrillic;
  if (in(0x590, 0x5FF)) return Script::hebrew;
  if (in(0x600, 0x6FF)) return Script::arabic;
  if (in(0x900, 0x97F)) return Script::devanagari;
  if (in(0xE00, 0xE7F)) return Script::thai;
  if (in(0xAC00, 0xD7AF)) return Script::hangul;
  if (in(0x3040, 0x30FF)) return Script::kana;
  if (in(0x4E00, 0x9FFF)) return Script::han;
  return Script::other;
}

// The features of a language: its script, its letters other than a to z (in other scripts: letters that not
// all languages of the script have), and frequent words.
struct LanguageProfile {
  std::string_view code;
  Script script;
  std::string_view letters, words;  // words between spaces
};

constexpr LanguageProfile language_profiles[] = {
    {"en", Script::latin, "",
     " the of and to a in is it that was for on are with as his her they at be this have from or by "
     "one had not but what all were we when your can said there an which she he do how their if will "
     "you i my me who has been would two man woman "},
    {"de", Script::latin, "äöüß",
     " der die das und ist in den von zu mit sich des auf für nicht ein eine einer einem einen als "
     "auch es an er hat aus bei wir ich sie war wird sind noch wie im dem nach über vor zum zur mein "
     "haben um du uns ihr wenn aber mann frau "},
    {"fr", Script::latin, "éèàâêîôûçëïùœ",
     " le la les de des du et est un une que qui dans pour pas sur ce cette il elle nous vous je tu au "
     "aux par avec son sa ses se ne plus en sont mais ou où ont était homme femme leur comme c'est "},
    {"es", Script::latin, "áéíóúñü¿¡",
     " el la los las de del y en que un una es por con no para su al lo como más pero sus le ya este "
     "sí porque esta son entre cuando muy sin sobre también me hasta hay donde yo se está hombre mujer "},
    {"it", Script::latin, "àèéìòù",
     " il lo la i gli le di del della e è un una che in per non con si da sono come più anche ma nel "
     "alla questo questa su al dei ha mi ti ci io tu lui lei noi uomo donna era "},
    {"pt", Script::latin, "ãõáéíóúâêôàç",
     " o a os as de do da dos das e em que um uma é por com não para se no na mais como mas ao ele ela "
     "foi são eu você isso este esta também muito já homem mulher está "},
    {"nl", Script::latin, "ëïé",
     " de het een en van is in dat op te zijn met voor niet aan er die ook als bij maar om uit door "
     "over ze hij ik je we naar heeft dan nog wel geen wordt man vrouw "},
    {"sv", Script::latin, "åäö",
     " och att det i en är som på av för med den till inte om ett han var jag men sig från vi så kan "
     "när hon de har du skulle eller där man kvinna "},
    {"da", Script::latin, "æøå",
     " og at det i en er som på af for med den til ikke om et han var jeg men sig fra vi så kan når hun "
     "de har du skulle eller der mand kvinde blev "},
    {"nb", Script::latin, "æøå",
     " og at det i en er som på av for med den til ikke om et han var jeg men seg fra vi så kan når hun "
     "de har du skulle eller der mann kvinne ble "},
    {"fi", Script::latin, "äö",
     " ja on ei se että hän oli mutta ovat kun niin myös jos tai mitä minä sinä me he ole joka kuin "
     "nyt vain sen tämä "},
    {"pl", Script::latin, "ąćęłńóśźż",
     " i w na z nie się to do jest że o jak a po co od ale tak za przez czy dla są było być ten mężczyzna "
     "kobieta tego już "},
    {"cs", Script::latin, "áčďéěíňóřšťúůýž",
     " a v na je se že to s z do o i ve jsem jako za po ale by si od který jeho pro není jsou "
     "byl muž žena "
     "tak "},
    {"sk", Script::latin, "áäčďéíĺľňóôŕšťúýž",
     " a v na je sa že to s z do o i vo som ako za po ale by si od ktorý jeho pre nie sú bol "
     "muž žena tak "},
    {"hu", Script::latin, "áéíóöőúüű",
     " a az és hogy nem is egy van de ez meg ha csak már mint volt el azt én ki még vagy férfi nő "},
    {"ro", Script::latin, "ăâîșțşţ",
     " și în de la a o un cu pe nu că este din mai pentru care se să au fost ca ce dar sunt bărbat "
     "femeie "},
    {"tr", Script::latin, "çğıöşüİ",
     " bir ve bu da de için çok ne ile o ben gibi daha var mi sen olarak kadar ama en değil adam kadın "},
    {"ru", Script::cyrillic, "ёыэъ",
     " и в не на я что он с как это а по но они мы она так его из за у же от все был ты бы для вы "},
    {"uk", Script::cyrillic, "іїєґ",
     " і в не на я що він з як це а по але вони ми вона так його із за у же від все був ти б для ви та "},
    {"bg", Script::cyrillic, "ъ",
     " и в не на аз че той с как това а по но те ние тя така от за се е да са ще си има "},
    {"el", Script::greek, "", " "},
    {"he", Script::hebrew, "", " "},
    {"ar", Script::arabic, "", " "},
    {"fa", Script::arabic, "پچژگی", " و در به از که این را با است برای آن یک خود تا بر هم "},
    {"hi", Script::devanagari, "", " "},
    {"th", Script::thai, "", " "},
    {"ko", Script::hangul, "", " "},
    {"ja", Script::kana, "", " "},
    {"zh", Script::han, "", " "},
};

const LanguageProfile* find_profile(std::string_view code) {
  if (code == "no") code = "nb";
  for (const LanguageProfile& profile : language_profiles)
    if (profile.code == code) return &profile;
  return nullptr;
}

// The lower-case form of capitals of Latin, Greek and Cyrillic; enough for the words of the profiles.
char32_t lower_letter(char32_t c) {
  if ((c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3A9) ||
      (c >= 0x410 && c <= 0x42F))
    return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x100 && c <= 0x17F && c != 0x130 && c != 0x131 && c != 0x138 && c != 0x149 && c != 0x178 &&
      c != 0x17F) {
    const bool odd_capitals = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    return (c % 2 == 1) == odd_capitals ? c + 1 : c;
  }
  return c;
}

}  // namespace

bool can_detect(std::string_view code) { return find_profile(code) != nullptr; }

std::vector<std::string> detectable_languages(std::span<const std::string> codes) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& code) {
    const auto* profile = find_profile(code);
    const auto same = [&](const std::string& other) { return find_profile(other) == profile; };
    if (profile != nullptr && std::none_of(found.begin(), found.end(), same)) found.push_back(code);
  };
  for (const std::string& code : codes) add(code);
  for (const LanguageProfile& profile : language_profiles) add(std::string(profile.code));
  return found;
}

std::vector<DetectedLanguage> detect_language(std::string_view text, std::span<const std::string> among) {
  // Log likelihood ratios of a frequent word and of a special letter in a language that has them.
  const double word_evidence = std::log(20.0), letter_evidence = std::log(10.0);
  constexpr std::size_t most_letters = 4096;
  struct Candidate {
    const LanguageProfile* profile;
    std::string code;
    double score = 0;
  };
  std::vector<Candidate> candidates;
  for (const std::string& code : among)
    if (const auto* profile = find_profile(code)) candidates.push_back({profile, code});
  std::string word = " ";
  const auto finish_word = [&] {
    word += ' ';
    if (word.size() > 2) {
      for (Candidate& c : candidates)
        if (c.profile->words.find(word) != std::string_view::npos) c.score += word_evidence;
    }
    word = " ";
  };
  std::size_t letters = 0;
  for_each_code_point(text, [&](char32_t given, std::string_view) {
    if (letters >= most_letters) return;
    const char32_t c = lower_letter(given);
    const Script script = script_of_letter(c);
    if (script == Script::other && c != '\'' && c != 0xBF && c != 0xA1) return finish_word();
    ++letters;
    const std::string letter = utf8_of(c);
    if (script != Script::other || c == '\'') word += letter;
    for (Candidate& candidate : candidates) {
      const LanguageProfile& profile = *candidate.profile;
      const bool own = c >= 0x80 && profile.letters.find(letter) != std::string_view::npos;
      const bool japanese = profile.script == Script::kana && script == Script::han;
      // Text with only Chinese characters is more likely Chinese than Japanese.
      if (japanese) candidate.score -= std::log(2.0);
      if (own) {
        candidate.score += letter_evidence;
      } else if (script != Script::other && script != profile.script && !japanese) {
        candidate.score -= letter_evidence;
      } else if (script == Script::latin && c >= 0x80) {
        candidate.score -= letter_evidence;  // a letter that the language does not have
      }
    }
  });
  finish_word();
  double most = 0, sum = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    most = i == 0 ? candidates[i].score : std::max(most, candidates[i].score);
  for (const Candidate& c : candidates) sum += std::exp(c.score - most);
  std::vector<DetectedLanguage> found;
  for (const Candidate& c : candidates)
    found.push_back({c.code, std::round(1000 * std::exp(c.score - most) / sum) / 10});
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.confidence > b.confidence; });
  return found;
}

}  // namespace eigenformer::detail
