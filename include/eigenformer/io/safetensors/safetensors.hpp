#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
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

namespace detail {

/// The header of a safetensors file, validated against the size of the file.
struct SafetensorsHeader {
  /// The format's own limit on the header's length, in bytes.
  static constexpr std::uint64_t max_length = 100'000'000;
  /// Our limit on the names and values in the header: a tensor has about 13.
  static constexpr std::size_t max_items = 2'000'000;

  std::vector<TensorInfo> tensors;              ///< in the order of their data
  std::map<std::string, std::string> metadata;  ///< `__metadata__`: texts by key; empty when there is none
};

/// Parses and validates the header of a safetensors file: a length n in 8 bytes, n bytes of JSON, then the
/// tensors' bytes without gaps. file: all bytes of the file; path: its name in messages. Format:
/// https://github.com/huggingface/safetensors. Throws IoError that says what is wrong.
EIGENFORMER_IO_FUNCTION SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                                                   const std::string& path);

}  // namespace detail

/// A safetensors file, mapped into memory and validated. Tensors may outlive the object: they keep the
/// mapping alive.
///
/// ```cpp
/// const auto file = SafetensorsFile::open("model.safetensors");
/// for (const std::string& name : file.names()) use(name, file.tensor<float>(name));
/// ```
class SafetensorsFile {
 public:
  /// Opens a file and validates its header. Throws IoError that names the file, the tensor and what was
  /// expected.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// The path that was opened.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// All tensors in the order of their data in the file.
  const std::vector<TensorInfo>& infos() const noexcept { return header_.tensors; }

  /// The names of all tensors, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, position] : index_) out.push_back(name);
    return out;
  }

  /// Further names of shared tensors that are stored once: from the alias to the name in the file. They are
  /// stored as metadata, as Python's safetensors.torch.save_model does. info(), tensor() and the others
  /// accept both names.
  const std::map<std::string, std::string>& aliases() const noexcept { return aliases_; }

  /// Whether there is a tensor or alias of this name.
  bool contains(const std::string& name) const { return index_.count(name) > 0 || aliases_.count(name) > 0; }

  /// Element type, shape and location of a tensor. Throws IoError when there is none of this name.
  const TensorInfo& info(const std::string& name) const;

  /// The metadata of the file: texts in UTF-8 by key, aliases included; empty when there are none.
  const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }

  /// The bytes of a tensor as in the file, without a copy; valid as long as the mapping. Throws IoError when
  /// there is none of this name.
  std::span<const std::byte> bytes(const std::string& name) const { return view(info(name)); }

  /// Returns a tensor of the file. When is_mapped(), it shares the mapping, copy-on-write: writing to it
  /// changes memory only. Otherwise the values are converted: floating-point types to each other (rounding),
  /// integers to wider or narrower integers. Throws IoError when there is no such tensor, its type does not
  /// convert to T, or a value is out of range.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const TensorInfo& found = info(name);
    return detail::tensor_of_bytes<T>(
        found.dtype, view(found), found.shape,
        once_ ? detail::MappedFile::own(map_, view(found)) : std::shared_ptr<void>(map_), "safetensors",
        what(found.name));
  }

  /// Whether `tensor<T>()` needs no copy: the type is T and the data are aligned for it. Throws IoError when
  /// there is no such tensor.
  template <class T>
  bool is_mapped(const std::string& name) const {
    const TensorInfo& found = info(name);
    return detail::needs_no_conversion<T>(found.dtype, view(found));
  }

  /// Maps the same file again, to read each tensor once: writes to tensors of the result do not change those
  /// of this object, and their bytes leave the process's memory with them, or when they were converted.
  /// Throws IoError when the size of the file has changed.
  SafetensorsFile again() const {
    SafetensorsFile file = *this;
    file.map_ = map_->again();
    file.once_ = true;
    return file;
  }

  /// Copies a tensor of the file, converted as by tensor(), into an existing one. Throws IoError as tensor()
  /// does, and when the shapes differ.
  template <class T>
  void read_into(const std::string& name, Tensor<T>& destination) const {
    const TensorInfo& found = info(name);
    if (found.shape != destination.shape()) {
      throw IoError("safetensors",
                    {what(name), " has shape ", found.shape, ", expected ", destination.shape()});
    }
    detail::convert_elements(found.dtype, view(found), destination.data(), "safetensors", what(found.name));
    if (once_) detail::MappedFile::release(view(found));
    destination.mark_changed();
  }

 private:
  std::string what(const std::string& name) const {
    return "tensor '" + name + "' of '" + path_.string() + "'";
  }
  std::span<std::byte> view(const TensorInfo& found) const {
    return map_->bytes().subspan(static_cast<std::size_t>(found.begin),
                                 static_cast<std::size_t>(found.bytes));
  }

  std::filesystem::path path_;
  std::shared_ptr<detail::MappedFile> map_;
  bool once_ = false;  // each tensor is read once
  detail::SafetensorsHeader header_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> aliases_;
};

/// Collects named tensors of any element types and writes them to one file.
///
/// Tensors are held, not copied. The data begin at a multiple of 64 bytes, larger element types first, so
/// that every tensor is aligned for mapping; equal contents give identical files. Of tensors that share
/// memory (tied weights) the first is stored, and the metadata map the other names to it, as Python's
/// safetensors.torch does.
///
/// ```cpp
/// SafetensorsWriter writer;
/// writer.add("weight", weight).add("mask", mask).set_metadata("format", "pt");
/// writer.save("out.safetensors");
/// ```
class SafetensorsWriter {
 public:
  /// Adds a tensor. Throws ValueError for a name that is used twice, is "__metadata__" or is not UTF-8, and
  /// for a tensor whose memory was released.
  template <class T>
  SafetensorsWriter& add(const std::string& name, const Tensor<T>& tensor) {
    const std::string quoted = quote(name);
    if (name == "__metadata__") throw ValueError("safetensors", "a tensor cannot be named '__metadata__'");
    detail::require_memory_to_save("safetensors", name, tensor);
    if (!names_.insert(name).second) throw ValueError("safetensors", {"the name '", name, "' is used twice"});
    if (tensor.numel() > 0) {
      const auto [begin, end] = by_data_.equal_range(tensor.data());
      for (auto at = begin; at != end; ++at) {
        const Entry& entry = entries_[at->second];
        if (entry.dtype != detail::dtype_of<T>() || entry.shape != tensor.shape()) continue;
        aliases_.emplace(quoted, quote(entry.name));
        return *this;
      }
      by_data_.emplace(tensor.data(), entries_.size());
    }
    std::string shape;
    for (const index_t n : tensor.shape()) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    entries_.push_back({name,
                        quoted + ":{\"dtype\":\"" + detail::dtype_name(detail::dtype_of<T>()) +
                            "\",\"shape\":[" + shape + "]",
                        std::as_bytes(tensor.span()), std::make_shared<Tensor<T>>(tensor),
                        detail::dtype_of<T>(), tensor.shape()});
    return *this;
  }

  /// Sets a metadata text, or replaces it. Throws ValueError when key or value is not UTF-8.
  SafetensorsWriter& set_metadata(const std::string& key, const std::string& value) {
    metadata_[quote(key)] = quote(value);
    return *this;
  }

  /// Writes all tensors and metadata to `path`, atomically (see AtomicFile). Throws ValueError when a
  /// metadata key is the alias of a tensor, IoError for a header above SafetensorsHeader::max_length and when
  /// writing fails; an existing file is then unchanged.
  void save(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string name;
    std::string json;  // up to the offsets, which depend on the order of the data
    std::span<const std::byte> bytes;
    std::shared_ptr<void> tensor;
    Dtype dtype;
    Shape shape;
  };

  static std::string quote(const std::string& text);

  std::string header(const std::vector<const Entry*>& order) const;

  std::vector<Entry> entries_;
  std::multimap<const void*, std::size_t> by_data_;  // entries by where their data begin, if they have any
  std::set<std::string> names_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::string> aliases_;
};

/// Writes named tensors of one element type to a safetensors file, atomically. Throws as SafetensorsWriter
/// does; an existing file is then unchanged.
template <class T>
void save_safetensors(const std::filesystem::path& path,
                      const std::vector<std::pair<std::string, Tensor<T>>>& tensors,
                      const std::map<std::string, std::string>& metadata = {}) {
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  writer.save(path);
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

class SafetensorsParser {
 public:
  SafetensorsParser(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  SafetensorsHeader parse() {
    if (file_.size() < 8)
      fail({"it is ", file_.size(), " bytes long, and a safetensors file has at least 8"});
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    if (length > SafetensorsHeader::max_length) {
      fail({"its header would be ", length, " bytes long, at most ", SafetensorsHeader::max_length,
            " are allowed; it is not a safetensors file"});
    }
    if (length > file_.size() - 8) {
      fail({"its header of ", length, " bytes ends outside the file of ", file_.size(),
            " bytes; it is truncated or not a safetensors file"});
    }
    data_begin_ = 8 + length;
    const auto* text = reinterpret_cast<const char*>(file_.data()) + 8;
    if (length == 0 || text[0] != '{')
      fail({"its header does not begin with '{'; it is not a safetensors file"});
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
  [[noreturn]] void fail(std::initializer_list<MessagePart> message) const {
    throw IoError("safetensors", {"cannot read '", path_, "': ", join(message)});
  }
  [[noreturn]] void fail(const std::string& tensor, std::initializer_list<MessagePart> message) const {
    fail({"tensor '", tensor, "' ", join(message)});
  }

  // The header of a tensor is 3 deep. More values than a model has are an error before they take memory.
  nlohmann::json parse_json(std::string_view text) const {
    UniqueJson json(3, SafetensorsHeader::max_items);
    try {
      if (!nlohmann::json::sax_parse(text, &json)) fail({"its header is not valid JSON (", json.error, ")"});
    } catch (const ValueError& error) {
      fail({"its header ", message_of(error)});
    }
    return std::move(json.value);
  }

  void read_metadata(const nlohmann::json& entry, SafetensorsHeader& header) const {
    if (!entry.is_object()) fail({"__metadata__ must be an object of strings"});
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail({"__metadata__ '", key, "' must be a string"});
      header.metadata.emplace(key, value.get<std::string>());
    }
  }

  TensorInfo read_tensor(const std::string& name, const nlohmann::json& entry) const {
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      fail(name, {"must be an object with dtype, shape and data_offsets"});
    }
    TensorInfo info;
    info.name = name;
    info.dtype = read_dtype(name, entry.at("dtype"));
    std::uint64_t bytes = dtype_size(info.dtype);
    info.shape = read_shape(name, entry.at("shape"), bytes);
    const nlohmann::json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail(name, {"must have two non-negative integers as data_offsets"});
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    const std::uint64_t available = file_.size() - data_begin_;
    const std::string range = "has data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
    if (begin > end) fail(name, {range, ", which end before they begin"});
    if (end > available)
      fail(name, {range, ", but only ", available, " bytes follow the header; the file is truncated"});
    if (end - begin != bytes) {
      fail(name,
           {range, ", but ", dtype_name(info.dtype), " of shape ", info.shape, " takes ", bytes, " bytes"});
    }
    info.begin = data_begin_ + begin;
    info.bytes = bytes;
    return info;
  }

  Dtype read_dtype(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_string()) fail(name, {"must have a string as dtype"});
    const auto text = value.get<std::string>();
    std::string known;
    for (std::size_t i = 0; i < dtype_names.size(); ++i) {
      if (text == dtype_names[i]) return static_cast<Dtype>(i);
      known += (known.empty() ? "" : ", ") + std::string(dtype_names[i]);
    }
    fail(name, {"has dtype '", text, "', expected one of ", known});
  }

  // Multiplies `bytes` by the number of elements, checking for overflow.
  Shape read_shape(const std::string& name, const nlohmann::json& value, std::uint64_t& bytes) const {
    if (!value.is_array()) fail(name, {"must have an array as shape"});
    if (static_cast<index_t>(value.size()) > Shape::max_rank)
      fail(name, {"has rank ", value.size(), ", at most ", Shape::max_rank, " is supported"});
    constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<index_t>::max());
    std::vector<index_t> dims;
    for (const nlohmann::json& dim : value) {
      const std::uint64_t n = dim.is_number_unsigned() ? dim.get<std::uint64_t>() : limit + 1;
      // The product of the dimensions other than zero must be in range, too.
      if (n > limit || (n > 0 && bytes > limit / n)) {
        fail(name,
             {"has the shape ", value.dump(), ", expected non-negative integers of a size that fits memory"});
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
      if (info.begin < end) fail(info.name, {"overlaps the bytes of '", before->name, "'"});
      if (info.begin > end) {
        fail(info.name,
             {"begins ", info.begin - end, " bytes after the end of ",
              (before == nullptr ? "the header" : "'" + before->name + "'"), "; no gap is allowed"});
      }
      end = info.begin + info.bytes;
      before = &info;
    }
    if (end != file_.size())
      fail({"it has ", file_.size() - end, " bytes after its last tensor, expected none"});
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  std::uint64_t data_begin_ = 0;
};

EIGENFORMER_IO_FUNCTION SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                                                   const std::string& path) {
  return SafetensorsParser(file, path).parse();
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.map_ = detail::MappedFile::open(path);
  file.header_ = detail::parse_safetensors_header(file.map_->bytes(), path.string());
  for (std::size_t i = 0; i < file.header_.tensors.size(); ++i) file.index_[file.header_.tensors[i].name] = i;
  for (const auto& [key, value] : file.header_.metadata) {
    if (file.index_.count(value) > 0 && file.index_.count(key) == 0) file.aliases_.emplace(key, value);
  }
  return file;
}

EIGENFORMER_IO_FUNCTION const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto alias = aliases_.find(name);
  const auto found = index_.find(alias == aliases_.end() ? name : alias->second);
  if (found == index_.end()) {
    throw IoError("safetensors", {"'", path_.string(), "' has no tensor '", name, "'"});
  }
  return header_.tensors[found->second];
}

EIGENFORMER_IO_FUNCTION void SafetensorsWriter::save(const std::filesystem::path& path) const {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries_) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return detail::dtype_size(a->dtype) > detail::dtype_size(b->dtype);
  });
  const std::string text = header(order);
  if (text.size() > detail::SafetensorsHeader::max_length) {
    throw IoError("safetensors", {"the names and metadata take ", text.size(), " bytes, at most ",
                                  detail::SafetensorsHeader::max_length, " are allowed"});
  }
  AtomicFile file(path);
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span<const std::uint64_t>(&length, 1)));
  file.write(text);
  for (const Entry* entry : order) file.write(entry->bytes);
  file.commit();
}

EIGENFORMER_IO_FUNCTION std::string SafetensorsWriter::quote(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError("safetensors", "names and metadata must be valid UTF-8");
  }
}

EIGENFORMER_IO_FUNCTION std::string SafetensorsWriter::header(const std::vector<const Entry*>& order) const {
  std::string text = "{";
  auto metadata = metadata_;
  for (const auto& [key, value] : aliases_) {
    if (!metadata.emplace(key, value).second) {
      throw ValueError("safetensors",
                       {"the metadata key ", key, " is the name of a tensor that is stored as ", value});
    }
  }
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata) pairs += (pairs.empty() ? "" : ",") + key + ":" + value;
    text += "\"__metadata__\":{" + pairs + "}";
  }
  std::uint64_t offset = 0;
  for (const Entry* entry : order) {
    if (text.size() > 1) text += ',';
    const std::uint64_t end = offset + entry->bytes.size();
    text += entry->json + ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  text += '}';
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  return text;
}

}  // namespace eigenformer

#endif
