#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

namespace detail {

// A part of a message: text, a number as std::to_string writes it, or an object with str(). Holds no copy.
// One function joins the parts, because code that adds up strings at each throw takes long to compile.
class MessagePart {
 public:
  MessagePart(const char* text) : MessagePart(std::string_view(text)) {}
  MessagePart(std::string_view text)
      : append_(append_text), data_(text.data()), number_{.size = text.size()} {}
  MessagePart(const std::string& text) : MessagePart(std::string_view(text)) {}
  MessagePart(std::signed_integral auto number) : append_(append_integer), number_{.integer = number} {}
  MessagePart(std::unsigned_integral auto number) : append_(append_unsigned), number_{.size = number} {}
  MessagePart(float number) : append_(append_float), number_{.real = number} {}
  MessagePart(double number) : append_(append_double), number_{.real = number} {}
  MessagePart(char letter) : append_(append_letter), number_{.integer = letter} {}
  MessagePart(bool) = delete;
  template <class Object>
  requires requires(const Object& object) {
    { object.str() } -> std::same_as<std::string>;
  }
  MessagePart(const Object& object)
      : append_([](const MessagePart& part, std::string& message) {
          message += static_cast<const Object*>(part.data_)->str();
        }),
        data_(&object) {}

  void append_to(std::string& message) const { append_(*this, message); }

 private:
  static void append_text(const MessagePart& part, std::string& message) {
    message.append(static_cast<const char*>(part.data_), part.number_.size);
  }
  static void append_integer(const MessagePart& part, std::string& message) {
    message += std::to_string(part.number_.integer);
  }
  static void append_unsigned(const MessagePart& part, std::string& message) {
    message += std::to_string(part.number_.size);
  }
  // Numbers have the fewest digits that tell them from others of their type.
  template <class T>
  static void append_digits(T number, std::string& message) {
    char digits[32];
    message.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  static void append_float(const MessagePart& part, std::string& message) {
    append_digits(static_cast<float>(part.number_.real), message);
  }
  static void append_double(const MessagePart& part, std::string& message) {
    append_digits(part.number_.real, message);
  }
  static void append_letter(const MessagePart& part, std::string& message) {
    message += static_cast<char>(part.number_.integer);
  }

  void (*append_)(const MessagePart&, std::string&);
  const void* data_ = nullptr;
  union {
    std::int64_t integer;
    std::uint64_t size;
    double real;
  } number_;
};

EIGENFORMER_NOINLINE inline std::string join(std::initializer_list<MessagePart> parts) {
  std::string message;
  for (const MessagePart& part : parts) part.append_to(message);
  return message;
}

}  // namespace detail

/// The base of all exceptions that this library throws; what() returns "[op] message".
class Error : public std::runtime_error {
 public:
  /// `op` names the operation or component that throws, `message` says what was wrong and what is expected.
  EIGENFORMER_NOINLINE Error(std::string_view op, std::string_view message)
      : std::runtime_error(detail::join({"[", op, "] ", message})), op_(op) {}
  /// The message in parts: text, numbers, shapes.
  ///
  ///     throw ef::ValueError("dropout", {"p is ", p, ", must be in [0, 1)"});
  EIGENFORMER_NOINLINE Error(std::string_view op, std::initializer_list<detail::MessagePart> message)
      : Error(op, detail::join(message)) {}

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
