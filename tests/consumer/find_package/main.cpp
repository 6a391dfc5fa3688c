// A client of an installed library that uses something of every component: exit code 0 when all is right.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "../work.hpp"
#if defined(CLIENT_WITH_IO)
#include "eigenformer/io/numpy/npz.hpp"
#endif
#if defined(CLIENT_WITH_TRANSLATOR)
#include "translator/preparing/prepare_options.hpp"
#if defined(EIGENFORMER_WITH_SERVER)
#include "translator/server/http/options.hpp"
#endif
#endif

static bool check(const char* component, bool right) {
  std::printf("%s: %s\n", component, right ? "ok" : "WRONG");
  return right;
}

int main() {
  namespace ef = eigenformer;
  bool right = check("compiled", product_sum() == 394 && loss_ratio() > 2);
#if defined(CLIENT_WITH_IO)
  const auto x = ef::Tensor<float>::arange(6).reshape({2, 3});
  ef::NpzWriter().add("x", x).save("x.npz");
  const auto y = ef::NpzFile::open("x.npz").tensor<float>("x");
  right = check("io", y.shape() == x.shape() && y.at({1, 2}) == 5) && right;
#endif
#if defined(CLIENT_WITH_SENTENCEPIECE)
  const std::vector<std::string> text = {"the old dog and the young dog", "a cat and an old dog"};
  const auto subwords = ef::train_tokenizer({.kind = "subword", .vocabulary_size = 24}, text);
  right = check("sentencepiece", subwords->decode(subwords->encode("old dog")) == "old dog") && right;
#endif
#if defined(CLIENT_WITH_ICU)
  const ef::detail::WordPieceTokenizer pieces({.tokens = {"[UNK]", "old", "dog", "##s"}, .unknown_id = 0});
  right = check("icu", pieces.encode("\xC3\x96ld dogs") == std::vector<std::int32_t>{1, 2, 3}) && right;
#endif
#if defined(CLIENT_WITH_TRANSLATOR)
  right = check("translator", ef::PrepareOptions{}.deduplicate) && right;
#if defined(EIGENFORMER_WITH_SERVER)
  right = check("server", !ef::ServerOptions{}.is_reachable()) && right;
#endif
#endif
#if defined(CLIENT_WITH_ZSTD)
  right =
      check("zstd", ef::decompress(ef::compress(ef::Compression::zstd, "old dog"), "text") == "old dog") &&
      right;
#endif
  return right ? 0 : 1;
}
