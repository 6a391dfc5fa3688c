#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/train/distributed/communicator.hpp"
#include "eigenformer/train/options/distributed.hpp"
#include "eigenformer/train/options/options.hpp"

namespace eigenformer::detail {

/// A part of the gradients that is sent in one message: some entries, one after the other. Rank r reduces its
/// piece, elements [bounds[r], bounds[r + 1]).
struct Bucket {
  std::vector<std::size_t> entries;
  std::vector<std::size_t> offsets;  // of each entry, and the end
  std::vector<std::size_t> bounds;

  std::size_t size() const { return offsets.back(); }
};

/// Assigns each parameter to a rank: largest first, to the rank with the fewest elements so far. Frozen
/// parameters have no owner (-1).
template <class T>
std::vector<int> owners_of(const std::vector<ParameterHandle<T>>& parameters, int ranks) {
  const auto order = stable_order(parameters.size(), [&](std::size_t a, std::size_t b) {
    return parameters[a]->value.numel() > parameters[b]->value.numel();
  });
  std::vector<index_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> owners(parameters.size(), -1);
  for (const std::size_t i : order) {
    if (parameters[i]->frozen) continue;
    const auto least = std::min_element(load.begin(), load.end());
    owners[i] = static_cast<int>(least - load.begin());
    *least += parameters[i]->value.numel();
  }
  return owners;
}

/// The parameters that this rank's optimizer steps: its own with a sharded optimizer, else all.
template <class T>
std::vector<ParameterHandle<T>> parameters_of_rank(const std::vector<ParameterHandle<T>>& parameters,
                                                   const LoopOptions& options) {
  if (options.communicator == nullptr || !options.distributed.shard_optimizer) return parameters;
  const auto all = distinct("training", parameters);
  const std::vector<int> owners = owners_of(all, options.communicator->size());
  std::vector<ParameterHandle<T>> own;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (owners[i] == options.communicator->rank()) own.push_back(all[i]);
  }
  return own;
}

/// Splits the entries into buckets of about `most` elements, in the given order. Pieces are of equal size,
/// or, when entries have owners, each owner's entries.
template <class T>
std::vector<Bucket> make_buckets(const Gradients<T>& gradients, const std::vector<std::size_t>& order,
                                 std::size_t most, int ranks, const std::vector<int>& owners) {
  const auto elements = [&](std::size_t e) {
    return static_cast<std::size_t>(gradients.entries()[e].value.numel());
  };
  std::vector<Bucket> buckets;
  std::size_t held = 0;
  for (const std::size_t e : order) {
    if (gradients.entries()[e].parameter->frozen) continue;
    if (buckets.empty() || (held > 0 && held + elements(e) > most)) {
      buckets.emplace_back();
      held = 0;
    }
    buckets.back().entries.push_back(e);
    held += elements(e);
  }
  const auto n = static_cast<std::size_t>(ranks);
  for (Bucket& b : buckets) {
    if (!owners.empty()) {
      stable_sort(std::span(b.entries), [&](std::size_t x, std::size_t y) { return owners[x] < owners[y]; });
    }
    b.offsets.push_back(0);
    for (const std::size_t e : b.entries) b.offsets.push_back(b.offsets.back() + elements(e));
    for (std::size_t r = 0; r <= n; ++r) {
      if (owners.empty()) {
        b.bounds.push_back(b.size() * r / n);
      } else {
        const auto first = std::find_if(b.entries.begin(), b.entries.end(),
                                        [&](std::size_t e) { return owners[e] >= static_cast<int>(r); });
        b.bounds.push_back(b.offsets[static_cast<std::size_t>(first - b.entries.begin())]);
      }
    }
  }
  return buckets;
}

/// Calls f(i, first, last) for each entry i of the bucket that overlaps [begin, end), with the overlap as
/// offsets into the bucket.
template <class F>
void for_entries(const Bucket& bucket, std::size_t begin, std::size_t end, F&& f) {
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    const std::size_t first = std::max(begin, bucket.offsets[i]);
    const std::size_t last = std::min(end, bucket.offsets[i + 1]);
    if (first < last) f(i, first, last);
  }
}

/// Sums the gradients of all ranks, bucket by bucket, while backward still runs.
///
/// An update has rounds; in each, a rank has the gradient of one micro-batch, or none. Each rank reduces a
/// piece of every bucket: it receives that piece from all ranks and adds it to the sum of the earlier rounds,
/// in the order of ranks, which is the order of micro-batches. After the last round all ranks get the sums,
/// or, with owners, each rank gets those of its own entries. All ranks send the buckets in the order in which
/// the first update's gradients were complete on rank 0.
///
/// One thread calls the functions; with DistributedOptions::overlap a thread of the reducer communicates.
///
///     reducer.begin(source, sum, active, first, last);
///     tape.backward(loss, source, [&](auto& entry) { reducer.complete(entry); });
///     reducer.end();
///     reducer.wait();   // before `source` changes
template <class T>
class Reducer {
 public:
  /// sum: the gradients that begin() will be given; only its entries are read here. owners: the rank that
  /// owns each entry; empty: all ranks get all sums.
  Reducer(const Gradients<T>& sum, std::shared_ptr<Communicator> communicator,
          const DistributedOptions& options, std::vector<int> owners = {})
      : communicator_(std::move(communicator)), options_(options), owners_(std::move(owners)) {
    order_.resize(sum.entries().size());
    std::iota(order_.rbegin(), order_.rend(), std::size_t{0});  // what is used last has its gradient first
    set_buckets(sum);
    if (overlaps()) thread_ = std::thread([this] { work(); });
  }
  ~Reducer() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Begins a round. Ranks 0 .. active - 1 have a gradient, in `source`; the other ranks have none. first,
  /// last: whether this is the first, the last round of an update; after the last, `sum` holds the summed
  /// gradients. Keeps references to both until the next round. Throws as wait(), which it calls.
  void begin(Gradients<T>& source, Gradients<T>& sum, int active, bool first, bool last) {
    wait();
    source_ = &source;
    sum_ = &sum;
    active_ = active;
    first_ = first;
    last_ = last;
    completed_.assign(source.entries().size(), 0);
    const std::lock_guard lock(mutex_);
    for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].entries.size();
    busy_ = true;
    changed_.notify_all();
  }

  /// Marks an entry of `source` as complete; a bucket is sent when all its entries are.
  void complete(const typename Gradients<T>::Entry& entry) {
    const auto e = static_cast<std::size_t>(&entry - source_->entries().data());
    if (bucket_of_[e] == none || completed_[e] != 0) return;
    completed_[e] = 1;
    if (!ordered_ && first_) seen_.push_back(e);
    const std::lock_guard lock(mutex_);
    if (--missing_[bucket_of_[e]] == 0) changed_.notify_all();
  }

  /// Marks all entries of `source` as complete. Without overlap it communicates, and throws as wait().
  void end() {
    for (const auto& entry : source_->entries()) complete(entry);
    if (overlaps()) return;
    for (std::size_t b = 0; b < buckets_.size(); ++b) reduce(b);
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }

  /// Waits for the end of the round. Rethrows what the communicator threw.
  void wait() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !busy_; });
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }
    if (!ordered_ && last_) set_order();
  }

  /// With owners: overwrites each parameter with its owner's values, after the optimizer's step. Collective;
  /// throws what the communicator throws.
  void share_weights() {
    for (const Bucket& b : buckets_) {
      wire_.resize(b.size() * sizeof(T));
      T* flat = reinterpret_cast<T*>(wire_.data());
      const auto me = static_cast<std::size_t>(communicator_->rank());
      const auto copy = [&](std::size_t begin, std::size_t end, bool out) {
        for_entries(b, begin, end, [&](std::size_t i, std::size_t from, std::size_t to) {
          Tensor<T>& value = sum_->entries()[b.entries[i]].parameter->value;
          T* weights = value.data() + (from - b.offsets[i]);
          if (out) {
            std::copy(weights, weights + (to - from), flat + from);
          } else {
            std::copy(flat + from, flat + to, weights);
            value.mark_changed();
          }
        });
      };
      copy(b.bounds[me], b.bounds[me + 1], true);
      gather_pieces(b, sizeof(T));
      for (std::size_t r = 0; r < ranks(); ++r) {
        if (r != me) copy(b.bounds[r], b.bounds[r + 1], false);
      }
    }
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  bool overlaps() const { return options_.overlap && communicator_->concurrent(); }
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_->size()); }

  void set_buckets(const Gradients<T>& gradients) {
    const std::size_t most = static_cast<std::size_t>(options_.bucket_kib) * 1024 / sizeof(T);
    buckets_ = make_buckets(gradients, order_, most, communicator_->size(), owners_);
    bucket_of_.assign(gradients.entries().size(), none);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const std::size_t e : buckets_[b].entries) bucket_of_[e] = b;
    }
    missing_.assign(buckets_.size(), 0);
    totals_.assign(buckets_.size(), {});
    written_.assign(buckets_.size(), {});
  }

  // After the first update: the order in which the gradients of its first round were complete on rank 0.
  void set_order() {
    communicator_->broadcast(std::as_writable_bytes(std::span(seen_)));
    order_ = std::move(seen_);
    ordered_ = true;
    set_buckets(*sum_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return busy_ || over_; });
      if (over_) return;
      try {
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
          changed_.wait(lock, [&] { return missing_[b] == 0 || over_; });
          if (over_) return;
          lock.unlock();
          const Relock relock{lock};
          reduce(b);
        }
      } catch (...) {
        error_ = std::current_exception();
      }
      busy_ = false;
      changed_.notify_all();
    }
  }
  struct Relock {
    std::unique_lock<std::mutex>& lock;
    ~Relock() { lock.lock(); }
  };

  void reduce(std::size_t b) {
    if (options_.reduction == Reduction::native) {
      if (last_) sum_natively(buckets_[b]);
    } else if (options_.precision == ReductionPrecision::bf16) {
      reduce_as<bfloat16>(b);
    } else {
      reduce_as<T>(b);
    }
  }

  // Wire: the type that is sent. A message holds a byte for each entry (whether it is written) and a piece.
  template <class Wire>
  void reduce_as(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    const std::size_t n = ranks(), me = static_cast<std::size_t>(communicator_->rank());
    const auto active = static_cast<std::size_t>(active_);
    const std::size_t head = (bucket.entries.size() + 7) / 8 * 8;
    const auto length = [&](std::size_t r) { return bucket.bounds[r + 1] - bucket.bounds[r]; };
    std::vector<std::span<const std::byte>> send(n);
    std::vector<std::span<std::byte>> receive(n);
    if (me < active) {
      std::size_t size = 0;
      for (std::size_t r = 0; r < n; ++r) size += message_bytes<Wire>(head, length(r));
      sent_.resize(size);
      std::byte* at = sent_.data();
      for (std::size_t r = 0; r < n; ++r) {
        const std::size_t bytes = message_bytes<Wire>(head, length(r));
        pack<Wire>(bucket, bucket.bounds[r], bucket.bounds[r + 1], head, at);
        send[r] = {at, bytes};
        at += bytes;
      }
    }
    const std::size_t mine = message_bytes<Wire>(head, length(me));
    received_.resize(active * mine);
    for (std::size_t r = 0; r < active; ++r) receive[r] = {received_.data() + r * mine, mine};
    communicator_->exchange(send, receive);

    std::vector<T>& total = totals_[b];
    std::vector<char>& written = written_[b];
    if (first_) {
      total.assign(length(me), T(0));
      written.assign(bucket.entries.size(), 0);
    }
    for (std::size_t r = 0; r < active; ++r) {
      const std::byte* from = received_.data() + r * mine;
      const Wire* piece = reinterpret_cast<const Wire*>(from + head);
      const std::size_t begin = bucket.bounds[me];
      for_entries(bucket, begin, bucket.bounds[me + 1],
                  [&](std::size_t i, std::size_t first, std::size_t last) {
                    if (from[i] == std::byte{0}) return;
                    T* to = total.data() + (first - begin);
                    const Wire* g = piece + (first - begin);
                    if (written[i] == 0) {
                      for (std::size_t k = 0; k < last - first; ++k) to[k] = converted<T>(g[k]);
                    } else {
                      for (std::size_t k = 0; k < last - first; ++k) to[k] += converted<T>(g[k]);
                    }
                  });
      for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
        if (from[i] != std::byte{0}) written[i] = 1;
      }
    }
    if (last_) distribute<Wire>(b);
  }

  // Sends the sums to all ranks, or leaves them with their owners.
  template <class Wire>
  void distribute(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    const auto me = static_cast<std::size_t>(communicator_->rank());
    const std::vector<T>& total = totals_[b];
    wire_.resize(bucket.size() * sizeof(Wire));
    Wire* flat = reinterpret_cast<Wire*>(wire_.data());
    for (std::size_t k = 0; k < total.size(); ++k) flat[bucket.bounds[me] + k] = converted<Wire>(total[k]);
    if (owners_.empty()) gather_pieces(bucket, sizeof(Wire));
    for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
      if (written_[b][i] == 0) continue;
      if (!owners_.empty() && owners_[bucket.entries[i]] != communicator_->rank()) continue;
      T* to = sum_->entries()[bucket.entries[i]].writable().data();
      const Wire* from = flat + bucket.offsets[i];
      for (std::size_t k = 0; k < bucket.offsets[i + 1] - bucket.offsets[i]; ++k)
        to[k] = converted<T>(from[k]);
    }
  }

  // Exchanges the ranks' pieces of wire_, so that all ranks have all of it.
  void gather_pieces(const Bucket& bucket, std::size_t element) {
    std::vector<std::span<const std::byte>> send;
    std::vector<std::span<std::byte>> receive;
    const auto me = static_cast<std::size_t>(communicator_->rank());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const auto piece = [&](std::size_t of) {
        return std::span(wire_).subspan(bucket.bounds[of] * element,
                                        (bucket.bounds[of + 1] - bucket.bounds[of]) * element);
      };
      send.push_back(r == me ? std::span<std::byte>{} : piece(me));
      receive.push_back(r == me ? std::span<std::byte>{} : piece(r));
    }
    communicator_->exchange(send, receive);
  }

  // Sums with the communicator's own sum, in whatever order it uses.
  void sum_natively(const Bucket& bucket) {
    wire_.resize((bucket.size() + bucket.entries.size()) * sizeof(T));
    T* flat = reinterpret_cast<T*>(wire_.data());
    T* counts = flat + bucket.size();  // how many ranks have written each
    for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
      const auto& entry = source_->entries()[bucket.entries[i]];
      const bool there = communicator_->rank() < active_ && entry.written;
      counts[i] = there ? T(1) : T(0);
      T* to = flat + bucket.offsets[i];
      const std::size_t length = bucket.offsets[i + 1] - bucket.offsets[i];
      if (there) {
        std::copy(entry.value.data(), entry.value.data() + length, to);
      } else {
        std::fill(to, to + length, T(0));
      }
    }
    communicator_->sum(std::span<T>(flat, bucket.size() + bucket.entries.size()));
    for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
      if (!(counts[i] > T(0))) continue;
      if (!owners_.empty() && owners_[bucket.entries[i]] != communicator_->rank()) continue;
      T* to = sum_->entries()[bucket.entries[i]].writable().data();
      std::copy(flat + bucket.offsets[i], flat + bucket.offsets[i + 1], to);
    }
  }

  template <class Wire>
  static std::size_t message_bytes(std::size_t head, std::size_t elements) {
    return head + (elements * sizeof(Wire) + 7) / 8 * 8;
  }

  template <class Wire>
  void pack(const Bucket& bucket, std::size_t begin, std::size_t end, std::size_t head, std::byte* to) const {
    std::memset(to, 0, head);
    for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
      to[i] = std::byte{source_->entries()[bucket.entries[i]].written ? std::uint8_t{1} : std::uint8_t{0}};
    }
    Wire* piece = reinterpret_cast<Wire*>(to + head);
    for_entries(bucket, begin, end, [&](std::size_t i, std::size_t first, std::size_t last) {
      const auto& entry = source_->entries()[bucket.entries[i]];
      Wire* out = piece + (first - begin);
      if (!entry.written) {
        std::fill(out, out + (last - first), Wire(0));
        return;
      }
      const T* from = entry.value.data() + (first - bucket.offsets[i]);
      for (std::size_t k = 0; k < last - first; ++k) out[k] = converted<Wire>(from[k]);
    });
  }

  // From T to the type that is sent, and back.
  template <class To, class From>
  static To converted(From value) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else {
      return static_cast<To>(static_cast<float>(value));
    }
  }

  std::shared_ptr<Communicator> communicator_;
  DistributedOptions options_;
  std::vector<int> owners_;
  std::vector<std::size_t> order_, seen_, bucket_of_;
  std::vector<Bucket> buckets_;             // in the order in which they are sent
  std::vector<std::vector<T>> totals_;      // this rank's piece of each bucket
  std::vector<std::vector<char>> written_;  // by any rank, for each entry of each bucket
  std::vector<std::byte> sent_, received_, wire_;
  bool ordered_ = false;

  // The current round.
  Gradients<T>* source_ = nullptr;
  Gradients<T>* sum_ = nullptr;
  int active_ = 0;
  bool first_ = false, last_ = false;
  std::vector<char> completed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> missing_;  // incomplete entries of each bucket
  bool busy_ = false, over_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace eigenformer::detail
