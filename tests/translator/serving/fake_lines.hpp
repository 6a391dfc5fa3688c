#pragma once

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "translator/serving/translator.hpp"

namespace eigenformer::testing {

/// A gate that the searches of FakeLines pass at each step.
class Gate {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  /// Lets one step through.
  void step() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++steps_;
    changed_.notify_all();
  }
  /// Until searches have asked for passage so often in all.
  void await(int arrivals) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return arrivals_ >= arrivals; });
  }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrivals_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || steps_ > 0; });
    if (!open_) --steps_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int steps_ = 0, arrivals_ = 0;
};

/// What FakeLines have seen.
struct FakeLog {
  std::mutex mutex;
  std::vector<std::size_t> batches;  ///< their sizes
  std::vector<int> threads;          ///< of a parallel loop, at each step
};

/// Translates a line of digits into itself, a digit a step, each step through a gate; batches with a 9 throw
/// after the first.
class FakeLines final : public LineTranslator {
 public:
  FakeLines(std::shared_ptr<Gate> gate, std::shared_ptr<FakeLog> log, TextTranslatorOptions options = {})
      : gate_(std::move(gate)), log_(std::move(log)), options_(std::move(options)) {}

  const TextTranslatorOptions& options() const override { return options_; }
  std::shared_ptr<const LineTranslator> with_options(TextTranslatorOptions options) const override {
    options.search.validate();
    return std::make_shared<FakeLines>(gate_, log_, std::move(options));
  }
  PreparedLine prepare(const std::string& line, std::uint64_t number,
                       const std::string& prefix) const override {
    PreparedLine prepared;
    prepared.number = number;
    for (const char c : line) prepared.ids.push_back(c - '0');
    for (const char c : prefix) prepared.prefix.push_back(c - '0');
    if (prepared.prefix.size() > 4) throw ValueError("fake", "the prefix is too long");
    return prepared;
  }
  std::vector<std::vector<Translation>> alternatives(
      std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer) const override {
    {
      const std::lock_guard<std::mutex> lock(log_->mutex);
      log_->batches.push_back(lines.size());
    }
    std::vector<std::vector<Translation>> translations(lines.size());
    std::vector<Hypothesis> found(lines.size());
    std::size_t most = 0;
    for (const PreparedLine& line : lines) most = std::max(most, line.ids.size());
    std::vector<bool> searching(lines.size(), true);
    for (std::size_t t = 0; t < most && std::count(searching.begin(), searching.end(), true) > 0; ++t) {
      {
        const std::lock_guard<std::mutex> lock(log_->mutex);
        log_->threads.push_back(Runtime::instance().threads());
      }
      gate_->pass();
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!searching[i] || t >= lines[i].ids.size()) continue;
        if (lines[i].ids[t] == 9) throw std::runtime_error("nine");
        found[i].ids.push_back(lines[i].ids[t]);
        searching[i] =
            (*observer)({i, static_cast<index_t>(t) + 1, 0, std::span<const Hypothesis>(&found[i], 1), {}});
      }
    }
    for (std::size_t i = 0; i < lines.size(); ++i)
      translations[i].push_back({.text = text_of(lines[i], found[i].ids)});
    return translations;
  }
  std::string text_of(const PreparedLine& line, std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : line.prefix) text += static_cast<char>('0' + id);
    for (const std::int32_t id : ids) text += static_cast<char>('0' + id);
    return text;
  }

 private:
  std::shared_ptr<Gate> gate_;
  std::shared_ptr<FakeLog> log_;
  TextTranslatorOptions options_;
};

/// Outcomes as they come.
class Outcomes {
 public:
  OutcomeHandler handler(int number) {
    return [this, number](TranslationOutcome outcome) {
      const std::lock_guard<std::mutex> lock(mutex_);
      came_.emplace_back(number, std::move(outcome));
      changed_.notify_all();
    };
  }
  void await(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return came_.size() >= count; });
  }
  std::size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return came_.size();
  }
  /// Of the request with a number, once it has come.
  TranslationOutcome of(int number) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto find = [&] {
      return std::find_if(came_.begin(), came_.end(), [&](const auto& o) { return o.first == number; });
    };
    changed_.wait(lock, [&] { return find() != came_.end(); });
    return find()->second;
  }
  /// The numbers, in the order in which they came.
  std::vector<int> order() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int> numbers;
    for (const auto& o : came_) numbers.push_back(o.first);
    return numbers;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<int, TranslationOutcome>> came_;
};

}  // namespace eigenformer::testing
