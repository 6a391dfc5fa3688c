#pragma once

#include <deque>
#include <future>
#include <optional>
#include <type_traits>
#include <utility>

namespace eigenformer::detail {

/// Calls take(work(item)) for each item until make() returns none: `work` runs on several threads, `make` and
/// `take` on this one, `take` in the order of the items. At most threads + 1 items are in progress.
template <class Make, class Work, class Take>
void in_order(int threads, Make&& make, const Work& work, Take&& take) {
  using Item = typename std::invoke_result_t<Make&>::value_type;
  using Result = std::invoke_result_t<const Work&, const Item&>;
  std::deque<std::future<Result>> under_way;
  const auto finish = [&] {
    std::future<Result> first = std::move(under_way.front());
    under_way.pop_front();
    take(first.get());
  };
  while (std::optional<Item> item = make()) {
    if (threads == 1) {
      take(work(*item));
      continue;
    }
    if (static_cast<int>(under_way.size()) > threads) finish();
    under_way.push_back(
        std::async(std::launch::async, [&work, own = std::move(*item)] { return work(own); }));
  }
  while (!under_way.empty()) finish();
}

}  // namespace eigenformer::detail
