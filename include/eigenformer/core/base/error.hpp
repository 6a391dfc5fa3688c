#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// The base of all exceptions that this library throws; what() returns "[op] message".
class Error : public std::runtime_error {
 public:
  /// `op` names the operation or component that throws, `message` says what was wrong and what is expected.
  EIGENFORMER_NOINLINE Error(std::string op, const std::string& message)
      : std::runtime_error("[" + op + "] " + message), op_(std::move(op)) {}

  /// The operation or component that threw, such as "matmul".
  const std::string& op() const noexcept { return op_; }

 private:
  std::string op_;
};

/// An index, token id or axis outside its range.
class IndexError : public Error {
  using Error::Error;
};

/// An argument, option or state that the operation does not accept.
class ValueError : public Error {
  using Error::Error;
};

/// A file or stream that cannot be read, written or parsed.
class IoError : public Error {
  using Error::Error;
};

namespace detail {

// The message of an error, without "[op] ".
inline std::string message_of(const Error& error) {
  return std::string(error.what()).substr(error.op().size() + 3);
}

}  // namespace detail

}  // namespace eigenformer
