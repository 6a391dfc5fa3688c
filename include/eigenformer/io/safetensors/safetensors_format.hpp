#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/io/safetensors/dtype.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"

namespace eigenformer {

/// Description of one tensor of a safetensors file.
struct TensorInfo {
  std::string name;          ///< UTF-8, unique in the file
  Dtype dtype = Dtype::f32;  ///< element type
  Shape shape;               ///< of rank 0 to Shape::max_rank, row-major
  std::uint64_t begin = 0;   ///< offset of its first byte from the start of the file
  std::uint64_t bytes = 0;   ///< size of its data in bytes
};

/// The header of a safetensors file, validated against the size of the file.
struct SafetensorsHeader {
  /// The format's own limit on the header's length, in bytes.
  static constexpr std::uint64_t max_length = 100'000'000;
  /// Our limit on the names and values in the header: a tensor has about 13.
  static constexpr std::size_t max_items = 2'000'000;

  std::vector<TensorInfo> tensors;              ///< in the order of their data
  std::map<std::string, std::string> metadata;  ///< `__metadata__`: texts by key; empty when there is none
};

namespace detail {

/// Parses and validates a safetensors header: a length n in 8 bytes, n bytes of JSON, then the tensors' bytes
/// without gaps.
class SafetensorsParser {
 public:
  SafetensorsParser(std::span<const std::byte> file, std::string path)
      : file_(file), path_(std::move(path)) {}

  SafetensorsHeader parse() {
    if (file_.size() < 8) {
      fail("it is " + std::to_string(file_.size()) + " bytes long, and a safetensors file has at least 8");
    }
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    if (length > SafetensorsHeader::max_length) {
      fail("its header would be " + std::to_string(length) + " bytes long, at most " +
           std::to_string(SafetensorsHeader::max_length) + " are allowed; it is not a safetensors file");
    }
    if (length > file_.size() - 8) {
      fail("its header of " + std::to_string(length) + " bytes ends outside the file of " +
           std::to_string(file_.size()) + " bytes; it is truncated or not a safetensors file");
    }
    data_begin_ = 8 + length;
    const auto* text = reinterpret_cast<const char*>(file_.data()) + 8;
    if (length == 0 || text[0] != '{')
      fail("its header does not begin with '{'; it is not a safetensors file");
    const nlohmann::json json = parse_json(std::string_view(text, static_cast<std::size_t>(length)));
    SafetensorsHeader header;
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        read_metadata(entry, header);
      } else {
        header.tensors.push_back(read_tensor(name, entry));
      }
    }
    check_layout(header);
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw IoError("safetensors", "cannot read '" + path_ + "': " + message);
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& message) const {
    fail("tensor '" + tensor + "' " + message);
  }

  // The header of a tensor is 3 deep. More values than a model has are an error before they take memory.
  nlohmann::json parse_json(std::string_view text) const {
    UniqueJson json(3, SafetensorsHeader::max_items);
    try {
      if (!nlohmann::json::sax_parse(text, &json)) fail("its header is not valid JSON (" + json.error + ")");
    } catch (const ValueError& error) {
      fail("its header " + message_of(error));
    }
    return std::move(json.value);
  }

  void read_metadata(const nlohmann::json& entry, SafetensorsHeader& header) const {
    if (!entry.is_object()) fail("__metadata__ must be an object of strings");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail("__metadata__ '" + key + "' must be a string");
      header.metadata.emplace(key, value.get<std::string>());
    }
  }

  TensorInfo read_tensor(const std::string& name, const nlohmann::json& entry) const {
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      fail(name, "must be an object with dtype, shape and data_offsets");
    }
    TensorInfo info;
    info.name = name;
    info.dtype = read_dtype(name, entry.at("dtype"));
    std::uint64_t bytes = dtype_size(info.dtype);
    info.shape = read_shape(name, entry.at("shape"), bytes);
    const nlohmann::json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail(name, "must have two non-negative integers as data_offsets");
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    const std::uint64_t available = file_.size() - data_begin_;
    const std::string range = "has data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
    if (begin > end) fail(name, range + ", which end before they begin");
    if (end > available) {
      fail(name, range + ", but only " + std::to_string(available) +
                     " bytes follow the header; the file is truncated");
    }
    if (end - begin != bytes) {
      fail(name, range + ", but " + dtype_name(info.dtype) + " of shape " + info.shape.str() + " takes " +
                     std::to_string(bytes) + " bytes");
    }
    info.begin = data_begin_ + begin;
    info.bytes = bytes;
    return info;
  }

  Dtype read_dtype(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_string()) fail(name, "must have a string as dtype");
    const auto text = value.get<std::string>();
    std::string known;
    for (const DtypeEntry& entry : dtype_table) {
      if (text == entry.name) return entry.dtype;
      known += known.empty() ? entry.name : std::string(", ") + entry.name;
    }
    fail(name, "has dtype '" + text + "', expected one of " + known);
  }

  // Multiplies `bytes` by the number of elements, checking for overflow.
  Shape read_shape(const std::string& name, const nlohmann::json& value, std::uint64_t& bytes) const {
    if (!value.is_array()) fail(name, "must have an array as shape");
    if (static_cast<index_t>(value.size()) > Shape::max_rank) {
      fail(name, "has rank " + std::to_string(value.size()) + ", at most " + std::to_string(Shape::max_rank) +
                     " is supported");
    }
    constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<index_t>::max());
    std::vector<index_t> dims;
    for (const nlohmann::json& dim : value) {
      const std::uint64_t n = dim.is_number_unsigned() ? dim.get<std::uint64_t>() : limit + 1;
      // The product of the dimensions other than zero must be in range, too.
      if (n > limit || (n > 0 && bytes > limit / n)) {
        fail(name,
             "has the shape " + value.dump() + ", expected non-negative integers of a size that fits memory");
      }
      if (n > 0) bytes *= n;
      dims.push_back(static_cast<index_t>(n));
    }
    if (std::find(dims.begin(), dims.end(), 0) != dims.end()) bytes = 0;
    return Shape(std::span<const index_t>(dims));
  }

  // In the order of offsets, each tensor must begin where the previous one ends, the last at the file's end.
  void check_layout(SafetensorsHeader& header) const {
    std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
    });
    std::uint64_t end = data_begin_;
    const TensorInfo* before = nullptr;
    for (const TensorInfo& info : header.tensors) {
      if (info.begin < end) fail(info.name, "overlaps the bytes of '" + before->name + "'");
      if (info.begin > end) {
        fail(info.name, "begins " + std::to_string(info.begin - end) + " bytes after the end of " +
                            (before == nullptr ? "the header" : "'" + before->name + "'") +
                            "; no gap is allowed");
      }
      end = info.begin + info.bytes;
      before = &info;
    }
    if (end != file_.size()) {
      fail("it has " + std::to_string(file_.size() - end) + " bytes after its last tensor, expected none");
    }
  }

  std::span<const std::byte> file_;
  std::string path_;
  std::uint64_t data_begin_ = 0;
};

}  // namespace detail

/// Parses and validates the header of a safetensors file. file: all bytes of the file; path: its name in
/// messages. Format: https://github.com/huggingface/safetensors. Throws IoError that says what is wrong.
inline SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path) {
  return detail::SafetensorsParser(file, path).parse();
}

}  // namespace eigenformer
