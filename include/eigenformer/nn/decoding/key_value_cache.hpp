#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/kernels/sequence/linear_attention.hpp"
#include "eigenformer/kernels/sequence/recurrence.hpp"
#include "eigenformer/nn/attention/attention.hpp"
#include "eigenformer/nn/module/rows.hpp"

namespace eigenformer::detail {

/// The keys and values of growing sequences for each self-attention of a decoder; for linear attention,
/// windows and recurrences a state of constant size.
///
/// Each attention has one block of keys and values in the order of their computation, and a table of row
/// numbers says which of them belong to a sequence, so reorder() copies numbers and never keys. Sequences may
/// differ in length. Tokens that no later token can reach leave the table; rows that are in no table leave
/// the block when it is full. A step is begin(), then attend(), window() and recurrence() with a slot for
/// each place in the model, and commit(); all steps use the same slots.
///
/// A step that ends without commit() has no effect: the next begin() overwrites its keys and values, and
/// after a first step starts afresh. But states advance in place, and keys are moved in place when the block
/// is full: if an exception leaves a later step after that, begin() and reorder() throw ValueError from then
/// on. reorder() that throws, also because memory ran out, changes nothing.
template <class T>
class KeyValueCache {
 public:
  /// `sequences` without tokens; memory is allocated in the first step. Throws ValueError for a negative
  /// number.
  explicit KeyValueCache(index_t sequences) : lengths_(checked(sequences), 0), dropped_(lengths_) {}

  /// Number of sequences.
  index_t sequences() const noexcept { return static_cast<index_t>(lengths_.size()); }
  /// Number of tokens of each sequence so far, including those that are no longer cached.
  std::span<const index_t> lengths() const noexcept { return lengths_; }
  /// Bytes of keys, values and states, including room reserved for later tokens.
  std::size_t bytes() const noexcept {
    std::size_t numbers = 0;
    for (const auto* held : {&cache_, &states_}) {
      for (const Tensor<T>& x : *held) numbers += x.defined() ? static_cast<std::size_t>(x.numel()) : 0;
    }
    return numbers * sizeof(T) + table_.size() * sizeof(index_t);
  }

  /// The packed layout of the new rows of the step under way.
  const SequenceLayout& queries() const noexcept { return queries_; }

  /// Begins a step: makes room for counts[i] more tokens of sequence i. prefix: the number of first tokens of
  /// each sequence that see one another in both directions, all of which must come in this step; empty: none.
  /// Throws ShapeError unless there is one count and one prefix for each sequence, ValueError for a negative
  /// count and a prefix that does not come in one step.
  void begin(std::span<const index_t> counts, const std::vector<index_t>& prefix = {}) {
    require_whole();
    check_counts(counts);
    check_prefix(counts, prefix);
    if (!reach_known_) {
      cache_.clear();
      states_.clear();
      unlimited_ = false;
      widest_ = 1;
    }
    drop_unreached();
    std::vector<index_t> total(lengths_);
    index_t rows = 0;
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] += counts[i] - dropped_[i];
      rows += counts[i];
    }
    widen(total.empty() ? 0 : *std::max_element(total.begin(), total.end()));
    make_room(rows);
    index_t row = rows_;
    for (std::size_t i = 0; i < total.size(); ++i) {
      index_t* const to = table_.data() + static_cast<index_t>(i) * capacity_;
      for (index_t t = held(i); t < total[i]; ++t) to[t] = row++;
    }
    queries_ = SequenceLayout::packed({counts.begin(), counts.end()}).with_first_position(lengths_);
    keys_ = SequenceLayout::cached(std::move(total), capacity_).with_first_position(dropped_);
    // A single new token sees all earlier ones, so it needs no mask.
    const bool single = std::all_of(counts.begin(), counts.end(), [](index_t n) { return n <= 1; });
    mask_ = single ? AttentionMask::none() : prefix_mask(prefix).within_causal();
  }

  /// Causal self-attention of the new rows x, (rows, D), with the cached ones. bias: (heads, 2 R + 1), added
  /// to the scores by distance. weights, if not null, receives the attention weights (sequences, heads, n,
  /// longest sequence), zero for keys that are no longer cached. Returns (rows, D). Throws ShapeError for
  /// another number of rows than the step's, ValueError for weights of linear attention, and for a window
  /// wider than those of the first step.
  Var<T> attend(const Context<T>& ctx, std::size_t slot, const MultiHeadAttention<T>& attention,
                const Var<T>& x, const Var<T>& bias = {}, Var<T>* weights = nullptr) {
    require_rows(x);
    AttentionCall<T> call =
        attention.call(ctx, attention.project_self(ctx, x, queries_), queries_, keys_, mask_, {}, bias);
    if (attention.linear_kind()) {
      if (!mask_.prefixes().empty()) throw ValueError("key_value_cache", "linear attention has no prefix");
      call.state = &at(states_, slot);
    } else {
      note_reach(attention.options.attention.window);
      keep(call.heads, at(cache_, slot));
      call.op.key_rows = table_.data();
    }
    if (weights != nullptr) *weights = Var<T>(with_dropped(call.weights(ctx).value()));
    if (attention.linear_kind()) begin_change();
    return attention.out_proj(ctx, call.run(ctx));
  }

  /// Each new row of x, (rows, D), preceded by the n - 1 rows before it in its sequence, with zeros before
  /// the beginning: (rows, n, D). Slots are shared with attend() and recurrence(). Throws ShapeError for
  /// another number of rows than the step's, ValueError for n below 1.
  Var<T> window(std::size_t slot, const Var<T>& x, index_t n) {
    require_rows(x);
    if (n < 1) throw ValueError("key_value_cache", {"a window of ", n, " rows must have at least 1"});
    const index_t d = x.dim(-1), kept = n - 1;
    Tensor<T>& state = at(states_, slot);
    if (!state.defined()) state = Tensor<T>::zeros(Shape{sequences(), kept * d});
    Tensor<T> out(Shape{queries_.rows(), n, d});
    std::vector<T> known;  // the rows before the new ones, then these
    for (index_t b = 0; b < queries_.batch(); ++b) {
      const index_t count = queries_.length(b), first = queries_.offset(b);
      T* const held_rows = state.data() + b * kept * d;
      begin_change();
      known.assign(held_rows, held_rows + kept * d);
      known.insert(known.end(), x.value().data() + first * d, x.value().data() + (first + count) * d);
      for (index_t t = 0; t < count; ++t)
        std::copy_n(known.data() + t * d, n * d, out.data() + (first + t) * n * d);
      std::copy(known.end() - kept * d, known.end(), held_rows);
    }
    return Var<T>(std::move(out));
  }

  /// recurrence() of each sequence, continued from its earlier rows. forget, input: (rows, D); returns the
  /// same shape. Slots are shared with attend() and window(). Throws ShapeError for another number of rows
  /// than the step's and for inputs of different shapes, ValueError in a step with a prefix.
  Var<T> recurrence(std::size_t slot, const Var<T>& forget, const Var<T>& input) {
    for (const Var<T>* x : {&forget, &input}) require_rows(*x);
    if (forget.shape() != input.shape()) {
      throw ShapeError("key_value_cache", "forget and input of a recurrence must have the same shape",
                       {forget.shape(), input.shape()});
    }
    if (!mask_.prefixes().empty()) throw ValueError("key_value_cache", "a recurrent layer has no prefix");
    const index_t d = input.dim(-1);
    Tensor<T>& state = at(states_, slot);
    if (!state.defined()) state = Tensor<T>::zeros(Shape{sequences(), d});
    Tensor<T> out(input.shape());
    begin_change();
    kernels::recurrence_forward<T>(forget.value().data(), input.value().data(), queries_.offsets(),
                                   queries_.lengths(), d, state.data(), out.data());
    return Var<T>(std::move(out));
  }

  /// Ends a step: appends the new tokens to their sequences.
  void commit() {
    if (!reach_known_) reach_ = unlimited_ ? 0 : widest_;
    reach_known_ = true;
    for (std::size_t i = 0; i < lengths_.size(); ++i) lengths_[i] += queries_.length(static_cast<index_t>(i));
    rows_ += queries_.rows();
    whole_ = true;
  }

  /// Sequence i continues what was sequence parents[i]; their number may change. Throws IndexError for a
  /// parent that does not exist; then nothing changes.
  void reorder(std::span<const std::int32_t> parents) {
    require_whole();
    for (const std::int32_t parent : parents) {
      if (parent >= 0 && parent < sequences()) continue;
      throw IndexError("key_value_cache",
                       {"parent ", parent, " does not exist, there are ", sequences(), " sequences"});
    }
    std::vector<index_t> table(parents.size() * static_cast<std::size_t>(capacity_));
    std::vector<index_t> lengths(parents.size()), dropped(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      const auto parent = static_cast<std::size_t>(parents[i]);
      lengths[i] = lengths_[parent];
      dropped[i] = dropped_[parent];
      std::copy_n(table_.begin() + static_cast<index_t>(parent) * capacity_, held(parent),
                  table.begin() + static_cast<index_t>(i) * capacity_);
    }
    std::vector<Tensor<T>> states(states_.size());
    for (std::size_t slot = 0; slot < states.size(); ++slot) {
      const Tensor<T>& state = states_[slot];
      if (!state.defined()) continue;
      states[slot] = Tensor<T>(state.shape().with(0, static_cast<index_t>(parents.size())));
      const index_t size = state.dim(1);
      for (std::size_t i = 0; i < parents.size(); ++i) {
        std::copy_n(state.data() + parents[i] * size, size,
                    states[slot].data() + static_cast<index_t>(i) * size);
      }
    }
    // All memory is there: nothing throws from here on.
    states_ = std::move(states);
    table_ = std::move(table);
    lengths_ = std::move(lengths);
    dropped_ = std::move(dropped);
  }

 private:
  static std::size_t checked(index_t sequences) {
    if (sequences >= 0) return static_cast<std::size_t>(sequences);
    throw ValueError("key_value_cache", {"the number of sequences is ", sequences, ", must not be negative"});
  }

  // Number of tokens of sequence i that are cached.
  index_t held(std::size_t i) const { return lengths_[i] - dropped_[i]; }

  // Marks the start of a change that cannot be undone. In a first step it can: begin() then drops everything.
  void begin_change() noexcept { whole_ = !reach_known_; }

  void require_whole() const {
    if (whole_) return;
    throw ValueError(
        "decoder_state",
        "an earlier step or reorder threw after it had changed the state; start again with a new state");
  }

  static Tensor<T>& at(std::vector<Tensor<T>>& held, std::size_t slot) {
    if (slot >= held.size()) held.resize(slot + 1);
    return held[slot];
  }

  // The first step determines how many tokens must be kept. Windows of 2^32 and more count as unlimited, so
  // that sums with them stay in range.
  void note_reach(index_t window) {
    const bool all = window == 0 || window >= (index_t{1} << 32);
    if (!reach_known_) {
      unlimited_ = unlimited_ || all;
      if (!all) widest_ = std::max(widest_, window);
    } else if (reach_ != 0 && (all || window > reach_)) {
      throw ValueError(
          "key_value_cache",
          {"an attention looks further back than those of the first step, which kept ", reach_, " tokens"});
    }
  }

  void check_counts(std::span<const index_t> counts) const {
    if (counts.size() != lengths_.size()) {
      throw ShapeError("key_value_cache",
                       {counts.size(), " counts must be ", lengths_.size(), ", one for each sequence"});
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] >= 0) continue;
      throw ValueError("key_value_cache",
                       {"sequence ", i, " gets ", counts[i], " tokens, must not be fewer than none"});
    }
  }

  // x: the input of a layer in the step under way.
  void require_rows(const Var<T>& x) const {
    if (x.shape().rank() == 2 && x.dim(0) == queries_.rows()) return;
    throw ShapeError("key_value_cache",
                     {"the input has shape ", x.shape(), ", must be (", queries_.rows(),
                      ", D): the rows of the step that begin() began"},
                     {x.shape()});
  }

  void check_prefix(std::span<const index_t> counts, const std::vector<index_t>& prefix) const {
    if (!prefix.empty() && prefix.size() != lengths_.size()) {
      throw ShapeError("key_value_cache", {prefix.size(), " prefix lengths must be ", lengths_.size(),
                                           ", one for each sequence"});
    }
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      if (prefix[i] == 0 || (lengths_[i] == 0 && prefix[i] <= counts[i])) continue;
      throw ValueError("key_value_cache", {"prefix of sequence ", i, " is ", prefix[i],
                                           " tokens, which must all be fed in the first step; this step has ",
                                           counts[i], " tokens from position ", lengths_[i], " on"});
    }
  }

  // Drops the tokens that the next one cannot reach from the table.
  void drop_unreached() {
    if (reach_ == 0) return;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const index_t first = std::max(dropped_[i], lengths_[i] - (reach_ - 1));
      index_t* const row = table_.data() + static_cast<index_t>(i) * capacity_;
      std::copy(row + (first - dropped_[i]), row + held(i), row);
      dropped_[i] = first;
    }
  }

  // Makes room for `rows` more rows in the block of every attention. If a block is full, or much larger than
  // a window needs, rows that no table contains are dropped, and the block gets room for as many rows again.
  void make_room(index_t rows) {
    index_t held_rows = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) held_rows += held(i);
    const index_t reached = sequences() * reach_;
    const bool wasteful = reach_ != 0 && block_ > 2 * (held_rows + rows + reached);
    if (rows_ + rows <= block_ && !wasteful) return;
    std::vector<index_t> place(static_cast<std::size_t>(rows_), -1);
    each_entry([&](index_t& row) { place[static_cast<std::size_t>(row)] = 0; });
    begin_change();
    index_t live = 0;
    for (index_t& p : place) p = p < 0 ? p : live++;
    each_entry([&](index_t& row) { row = place[static_cast<std::size_t>(row)]; });
    const index_t spare = live + 7 * rows;
    const index_t wanted = live + rows + (reach_ == 0 ? spare : std::min(spare, reached));
    if (wanted > block_ || 2 * wanted < block_) block_ = wanted;
    for (Tensor<T>& cache : cache_) {
      if (!cache.defined()) continue;
      // One at a time: the old and the new blocks of all attentions would take twice the memory.
      Tensor<T> to = block_ == cache.dim(0) ? cache : Tensor<T>(Shape{block_, cache.dim(1)});
      for (index_t r = 0; r < rows_; ++r) {
        const index_t p = place[static_cast<std::size_t>(r)];
        if (p < 0 || (p == r && to.data() == cache.data())) continue;
        std::copy_n(cache.data() + r * cache.dim(1), cache.dim(1), to.data() + p * cache.dim(1));
      }
      cache = std::move(to);
    }
    rows_ = live;
    whole_ = true;
  }

  template <class F>
  void each_entry(F&& f) {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      index_t* const row = table_.data() + static_cast<index_t>(i) * capacity_;
      for (index_t t = 0; t < held(i); ++t) f(row[t]);
    }
  }

  // The weights of the cached keys, preceded by zeros for those that were dropped.
  Tensor<T> with_dropped(const Tensor<T>& weights) const {
    if (std::all_of(dropped_.begin(), dropped_.end(), [](index_t n) { return n == 0; })) return weights;
    index_t longest = 0;
    for (index_t b = 0; b < keys_.batch(); ++b)
      longest = std::max(longest, keys_.position(b) + keys_.length(b));
    Tensor<T> whole = Tensor<T>::zeros(weights.shape().with(3, longest));
    for (index_t b = 0; b < keys_.batch(); ++b) {
      const index_t first = keys_.position(b), count = keys_.length(b);
      whole(b, eigenformer::all, eigenformer::all, range(first, first + count)) =
          weights(b, eigenformer::all, eigenformer::all, range(0, count));
    }
    return whole;
  }

  // Appends the new keys and values to those in the block, and refers to these in their place.
  void keep(AttentionHeads<T>& heads, Tensor<T>& cache) const {
    const index_t side = heads.k.width;
    if (!cache.defined()) cache = Tensor<T>(Shape{block_, 2 * side});
    T* to = cache.data() + rows_ * 2 * side;
    for (index_t r = 0; r < queries_.rows(); ++r) {
      for (const AttentionInput<T>* x : {&heads.k, &heads.v}) {
        to = std::copy_n(x->of.value().data() + r * x->of.dim(-1) + x->column, side, to);
      }
    }
    heads.k = {Var<T>(cache), 0, side};
    heads.v = {Var<T>(cache), side, side};
  }

  void widen(index_t length) {
    if (length <= capacity_) return;
    const index_t wider = std::max<index_t>(length, std::max<index_t>(16, 2 * capacity_));
    std::vector<index_t> table(lengths_.size() * static_cast<std::size_t>(wider));
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      std::copy_n(table_.begin() + static_cast<index_t>(i) * capacity_, held(i),
                  table.begin() + static_cast<index_t>(i) * wider);
    }
    table_ = std::move(table);
    capacity_ = wider;
  }

  std::vector<Tensor<T>> cache_;   // (block_, 2 D) keys and values, by slot; rows from rows_ on are spare
  std::vector<Tensor<T>> states_;  // (sequences, numbers) of linear attention, windows and recurrences
  std::vector<index_t> lengths_;   // by sequence
  std::vector<index_t> dropped_;   // the first tokens of each sequence that are no longer held
  std::vector<index_t> table_;  // (sequences, capacity_): the row of each token of each sequence that is held
  index_t reach_ = 0;   // the tokens, itself included, that a token's attention reaches back to; 0: all
  index_t widest_ = 1;  // of the windows in the first step
  bool unlimited_ = false, reach_known_ = false;
  bool whole_ = true;  // false while a step or re-ordering changes what it cannot take back
  index_t capacity_ = 0;
  index_t block_ = 0;
  index_t rows_ = 0;
  SequenceLayout queries_, keys_;  // of the step under way
  AttentionMask mask_;
};

EIGENFORMER_INSTANCES(class KeyValueCache)

}  // namespace eigenformer::detail
