#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "eigenformer/train/loop/loop.hpp"

namespace eigenformer::testing {

/// Records what training reports, and calls functions of the test at a step or a validation.
class Recorder : public TrainingSink {
 public:
  std::vector<StepReport> steps;
  std::vector<ValidationReport> validations;
  std::vector<std::string> notices;
  int best = 0;
  int checkpoints = 0;
  std::function<void(index_t)> at_step = [](index_t) {};
  std::function<void()> at_best = [] {};
  std::function<void()> at_checkpoint = [] {};
  std::function<void()> at_decay = [] {};

  void on_step(const StepReport& r) override {
    steps.push_back(r);
    at_step(r.step);
  }
  void on_validation(const ValidationReport& r) override { validations.push_back(r); }
  void on_notice(const std::string& text) override { notices.push_back(text); }
  void on_best() override {
    ++best;
    at_best();
  }
  void on_checkpoint() override {
    ++checkpoints;
    at_checkpoint();
  }
  void on_decay() override { at_decay(); }
};

}  // namespace eigenformer::testing
