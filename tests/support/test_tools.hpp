#pragma once

#include <exception>
#include <string>
#include <typeinfo>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer::testing {

/// The message of the error of exactly this class that f throws, or "no error" or "another error: ...".
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    if (typeid(error) == typeid(E)) return error.what();
    return "another error: " + std::string(error.what());
  }
  return "no error";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A tensor's values, in row-major order.
template <class T>
std::vector<T> values(const Tensor<T>& t) {
  return {t.span().begin(), t.span().end()};
}

}  // namespace eigenformer::testing
