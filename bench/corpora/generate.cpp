// Writes sentence pairs of an invented language and its translation as TSV to standard output, as many as
// asked for: words by Zipf's law, word by word, two neighbours swapped now and then. Of 100 pairs five came
// before, and two are to be filtered.
//
//     generate PAIRS [SEED] > corpus.tsv

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int num_words = 100'000;

// SplitMix64 (Steele et al. 2014).
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
};

// A word of one to four syllables: the number in base 75.
std::string word(int number, const char* const (&consonants)[15], const char* const (&vowels)[5]) {
  std::string text;
  for (int rest = number + 1; rest > 0; rest /= 75) {
    text += consonants[rest % 15];
    text += vowels[rest / 15 % 5];
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const long long pairs = argc > 1 ? std::atoll(argv[1]) : 0;
  Random random{argc > 2 ? static_cast<std::uint64_t>(std::atoll(argv[2])) : 1};
  if (pairs < 1) {
    std::fprintf(stderr, "usage: generate PAIRS [SEED] > corpus.tsv\n");
    return 1;
  }
  const char* const source_consonants[15] = {"b", "d", "f", "g", "k", "l", "m", "n",
                                             "p", "r", "s", "t", "v", "w", "z"};
  const char* const source_vowels[5] = {"a", "e", "i", "o", "u"};
  const char* const target_consonants[15] = {"ch", "d",  "f", "g",   "h", "j",  "l", "m",
                                             "n",  "pf", "r", "sch", "t", "st", "w"};
  const char* const target_vowels[5] = {"a", "e", "ei", "\xC3\xBC", "\xC3\xB6"};
  std::vector<std::string> source_words, target_words;
  for (int i = 0; i < num_words; ++i) {
    source_words.push_back(word(i, source_consonants, source_vowels));
    // 7919 is prime, so that all words come: frequent ones are not the short ones of both languages.
    target_words.push_back(word(static_cast<int>(i * 7919LL % num_words), target_consonants, target_vowels));
  }
  const double log_words = std::log(num_words);
  const auto draw = [&] { return static_cast<int>(std::exp(random.uniform() * log_words)) - 1; };
  std::string source, target, line;
  std::vector<std::string> recent(256);
  for (long long pair = 0; pair < pairs; ++pair) {
    const int kind = random.below(100);
    if (kind < 5 && pair >= 256) {
      line = recent[static_cast<std::size_t>(random.below(256))];
    } else {
      source.clear();
      target.clear();
      std::vector<int> words(static_cast<std::size_t>(4 + random.below(12) + random.below(14)));
      for (int& w : words) w = draw();
      for (const int w : words) source += source_words[static_cast<std::size_t>(w)] + ' ';
      for (std::size_t i = 1; i < words.size(); ++i)
        if (random.below(5) == 0) std::swap(words[i - 1], words[i]);
      for (const int w : words) target += target_words[static_cast<std::size_t>(w)] + ' ';
      source.back() = '.';
      target.back() = '.';
      if (kind == 5) target = source;
      if (kind == 6) target = target.substr(0, target.find(' '));
      line = source + '\t' + target + '\n';
      recent[static_cast<std::size_t>(pair % 256)] = line;
    }
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) {
      std::perror("generate");
      return 1;
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
