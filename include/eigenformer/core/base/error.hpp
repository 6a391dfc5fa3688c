#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// The root of everything this library throws (ShapeError is in shape.hpp); what() reads "[op] message".
class Error : public std::runtime_error {
 public:
  EIGENFORMER_NOINLINE Error(std::string op, const std::string& message)
      : std::runtime_error("[" + op + "] " + message), op_(std::move(op)) {}

  /// The operation or component that refused, such as "matmul".
  const std::string& op() const noexcept { return op_; }

 private:
  std::string op_;
};

/// An index, token id or axis outside its range.
class IndexError : public Error {
  using Error::Error;
};

/// A value that the operation cannot work with: an option, a rate, a state.
class ValueError : public Error {
  using Error::Error;
};

/// A file or stream that cannot be read, written or understood.
class IoError : public Error {
  using Error::Error;
};

namespace detail {

// What an error says, without the component that says it.
inline std::string message_of(const Error& error) {
  return std::string(error.what()).substr(error.op().size() + 3);
}

}  // namespace detail

}  // namespace eigenformer
