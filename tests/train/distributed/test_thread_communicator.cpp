#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/train/distributed/thread_communicator.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("ranks exchange messages of any size, broadcast, gather and add up") {
  for (const int size : {1, 2, 5}) {
    CAPTURE(size);
    run_ranks(size, [&](const std::shared_ptr<Communicator>& c) {
      const int n = c->size(), me = c->rank();
      CHECK(n == size);
      // Rank a sends 10 a + b to b, a + b times.
      std::vector<std::vector<std::byte>> out, in;
      std::vector<std::span<const std::byte>> send;
      std::vector<std::span<std::byte>> receive;
      for (int r = 0; r < n; ++r) {
        out.emplace_back(static_cast<std::size_t>(me + r), static_cast<std::byte>(10 * me + r));
        in.emplace_back(static_cast<std::size_t>(me + r));
      }
      for (const auto& m : out) send.emplace_back(m);
      for (auto& m : in) receive.emplace_back(m);
      c->exchange(send, receive);
      for (int r = 0; r < n; ++r) {
        CHECK(in[static_cast<std::size_t>(r)] ==
              std::vector<std::byte>(static_cast<std::size_t>(me + r), static_cast<std::byte>(10 * r + me)));
      }
      int value = me + 100;
      c->broadcast(std::as_writable_bytes(std::span(&value, 1)));
      CHECK(value == 100);
      std::vector<int> ranks(static_cast<std::size_t>(n));
      std::iota(ranks.begin(), ranks.end(), 0);
      CHECK(c->all(me) == ranks);
      const std::string word(static_cast<std::size_t>(me), 'x');
      const auto words = c->gather(std::as_bytes(std::span(word)));
      const auto words_for_all = c->gather(std::as_bytes(std::span(word)), true);
      for (int r = 0; r < n; ++r) {
        CHECK(words[static_cast<std::size_t>(r)].size() == static_cast<std::size_t>(me == 0 ? r : 0));
        CHECK(words_for_all[static_cast<std::size_t>(r)].size() == static_cast<std::size_t>(r));
      }
      std::vector<float> values{1, 2, 3, static_cast<float>(me)};
      c->sum(std::span<float>(values));
      const auto k = static_cast<float>(n);
      CHECK(values == std::vector<float>{k, 2 * k, 3 * k, k * (k - 1) / 2});
    });
  }
}

TEST_CASE("ranks that disagree on sizes, or of which one fails, throw and do not hang") {
  const auto disagree = [] {
    run_ranks(2, [](const std::shared_ptr<Communicator>& c) {
      const std::vector<char> mine(static_cast<std::size_t>(1 + c->rank()));
      (void)c->all(std::span<const char>(mine));
    });
  };
  CHECK(contains(message_of<ValueError>(disagree), "which expects"));
  const auto fail = [] {
    run_ranks(3, [](const std::shared_ptr<Communicator>& c) {
      if (c->rank() == 2) throw IndexError("test", "no more");
      (void)c->all(1);
      (void)c->all(1);
    });
  };
  CHECK(message_of<IndexError>(fail) == "[test] no more");
  CHECK(contains(message_of<ValueError>([] { run_ranks(0, [](const auto&) {}); }),
                 "the number of ranks is 0, must be at least 1"));
}
