#pragma once

#include <cmath>
#include <cstdio>
#include <string>

#include "eigenformer/core/runtime/profiler.hpp"

namespace eigenformer::bench {

namespace detail {

// A number in a column of the given width, or "-" where there is nothing to say.
inline std::string cell(double value, int width, int decimals) {
  char text[64];
  if (value > 0 && std::isfinite(value)) {
    std::snprintf(text, sizeof text, "%*.*f", width, decimals, value);
  } else {
    std::snprintf(text, sizeof text, "%*s", width, "-");
  }
  return text;
}

inline void print_row(std::FILE* out, const std::string& op, const char* pass, double calls,
                      const OpProfile& p, double steps, double wall_seconds) {
  std::fprintf(out, "%-26s %-9s%s%s %6.1f%%%s%s%s\n", op.c_str(), pass, cell(calls / steps, 7, 0).c_str(),
               cell(p.seconds / steps * 1e3, 10, 2).c_str(), 100 * p.seconds / wall_seconds,
               cell(p.flops / p.seconds * 1e-9, 9, 0).c_str(), cell(p.bytes / steps * 1e-6, 9, 1).c_str(),
               cell(p.bytes / p.seconds * 1e-9, 8, 1).c_str());
}

}  // namespace detail

/// Prints the profile, the most expensive op first: calls and milliseconds per step, share of the wall time,
/// rate of the products, megabytes per step and gigabytes per second; then the totals of forward and
/// backward.
inline void print_profile(std::FILE* out, const Profiler& profiler, double wall_seconds, double steps) {
  std::fprintf(out, "\n%-26s %-9s%7s%10s %7s%9s%9s%8s\n", "op", "pass", "calls", "ms/step", "share",
               "GFLOP/s", "MB/step", "GB/s");
  OpProfile sums[2], all;
  const auto add = [](OpProfile& sum, const OpProfile& p) {
    sum.calls += p.calls;
    sum.seconds += p.seconds;
    sum.flops += p.flops;
    sum.bytes += p.bytes;
  };
  for (const OpProfile& p : profiler.report()) {
    detail::print_row(out, p.op, p.backward ? "backward" : "forward", static_cast<double>(p.calls), p, steps,
                      wall_seconds);
    add(sums[p.backward ? 1 : 0], p);
    add(all, p);
  }
  OpProfile rest;
  rest.seconds = wall_seconds - all.seconds;
  std::fprintf(out, "%s\n", std::string(86, '-').c_str());
  const auto sum = [&](const char* name, const char* pass, const OpProfile& p) {
    detail::print_row(out, name, pass, static_cast<double>(p.calls), p, steps, wall_seconds);
  };
  sum("all ops", "forward", sums[0]);
  sum("all ops", "backward", sums[1]);
  sum("outside of ops", "", rest);
  all.seconds = wall_seconds;
  sum("step", "", all);
}

}  // namespace eigenformer::bench
