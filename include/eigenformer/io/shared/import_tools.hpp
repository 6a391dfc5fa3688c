#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/models/json_file.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

/// Options of importing a checkpoint of another library.
struct ImportOptions {
  std::string
      source_language{};  ///< for multilingual models, as spelled in their vocabulary: "eng_Latn"; else empty
  std::string target_language{};  ///< for multilingual models, as spelled in their vocabulary; else empty
  std::string source_text{};  ///< put before each source text, such as T5's "translate English to German: "
  /// Called with each setting of the checkpoint that affects results in its own library and is not supported
  /// here; may be empty.
  std::function<void(const std::string&)> warn{};
};

namespace detail {

/// Returns make(); a ValueError of it, about the contents of the file at `path`, becomes an IoError.
template <class F>
auto made_of_file(const std::filesystem::path& path, F&& make) {
  try {
    return make();
  } catch (const ValueError& error) {
    throw IoError("import", {"'", path.string(), "': ", error.what()});
  }
}

/// Throws ValueError for languages that a model, at `path`, has no place for.
EIGENFORMER_IO_FUNCTION void require_no_languages(const std::filesystem::path& path,
                                                  const ImportOptions& options);

/// Returns a size. Throws IoError unless it is from 1 to 2^31, so that products of sizes cannot overflow.
inline index_t require_size(const JsonFile& config, const char* name, index_t size) {
  constexpr index_t most = index_t{1} << 31;
  if (size > 0 && size <= most) return size;
  throw config.refuse({"has ", name, " ", size, ", expected 1 to ", most});
}

/// The same for the size in a field. Throws IoError when the field is absent, too.
inline index_t require_size(const JsonFile& config, const char* name) {
  return require_size(config, name, config.require<index_t>(name));
}

/// Throws IoError about the file that the options were read from when they do not describe a valid model.
template <class File, class Options>
void require_valid(const File& file, const Options& options) {
  try {
    options.validate("import");
  } catch (const ValueError& error) {
    throw file.refuse({"describes an invalid model: ", error.what()});
  }
}

/// The shape of a matrix of a file. Throws IoError when it has another rank.
template <class File>
Shape require_matrix(const File& file, const std::string& name) {
  const Shape shape = file.shape(name);
  if (shape.rank() == 2) return shape;
  throw file.refuse({"has a '", name, "' of shape ", shape.str(), ", expected a matrix"});
}

/// Collects the state dict of a model from the weights of another library. Source: contains(name),
/// shape(name), `tensor<T>(name)`, names(), refuse(what). Memory is allocated only for tensors that the file
/// holds.
template <class T, class Source>
class WeightImport {
 public:
  explicit WeightImport(const Source& source) : source_(source) {}

  const Source& source() const noexcept { return source_; }

  /// Sets our tensor `ours` of this shape to theirs, of which several are concatenated by rows, without the
  /// first `skipped` rows. A missing or misshaped tensor is reported by model().
  void take(const std::string& ours, const std::vector<std::string>& theirs, const Shape& shape,
            index_t skipped = 0) {
    if (!fits(theirs, skipped == 0 ? shape : shape.with(0, shape[0] + skipped))) return;
    if (theirs.size() == 1) {
      const Tensor<T> whole = source_.template tensor<T>(theirs[0]);
      return add(ours, skipped == 0 ? whole.reshape(shape) : whole.rows(skipped, shape[0]));
    }
    put(ours, Tensor<T>(shape), theirs);
  }
  /// Sets our weight of this shape and our bias, whose names begin with `ours`, to those of theirs, as take()
  /// does.
  void take_with_bias(const std::string& ours, const std::vector<std::string>& theirs, const Shape& shape) {
    for (const std::string part : {"weight", "bias"}) {
      std::vector<std::string> names;
      for (const std::string& name : theirs) names.push_back(name + "." + part);
      take(ours + part, names, part == "weight" ? shape : Shape{shape[0]});
    }
  }
  /// As take(); if `lacking`, theirs lacks our last row, which is then of `value`.
  void take_with_row(const std::string& ours, const std::string& theirs, const Shape& shape, bool lacking,
                     double value) {
    if (!lacking) return take(ours, {theirs}, shape);
    if (fits({theirs}, shape.with(0, shape[0] - 1)))
      put(ours, Tensor<T>::full(shape, static_cast<T>(value)), {theirs});
  }
  /// Sets a bias to parts (name, size), concatenated. or_zero: missing ones are zeros, and not reported.
  void take_vectors(const std::string& ours, const std::vector<std::pair<std::string, index_t>>& theirs,
                    bool or_zero = false) {
    index_t size = 0;
    for (const auto& [name, n] : theirs) {
      if (!(or_zero && !source_.contains(name)) && !fits({name}, Shape{n})) return;
      size += n;
    }
    Tensor<T> whole = Tensor<T>::zeros(Shape{size});
    T* out = whole.data();
    for (const auto& [name, n] : theirs) {
      if (source_.contains(name)) std::copy_n(source_.template tensor<T>(name).data(), n, out);
      out += n;
    }
    add(ours, std::move(whole));
  }
  /// Sets our tensor `ours` to a value made by the caller.
  void add(const std::string& ours, Tensor<T> value) { entries_.push_back({ours, std::move(value), {}}); }
  /// Marks a tensor of theirs as read or not needed.
  void used(const std::string& name) { used_.insert(name); }

  /// Makes a model with the collected tensors. Throws IoError that lists all missing, misshaped and unused
  /// tensors, before it takes memory for the model, and when names or shapes do not match the model's.
  template <class M, class Options>
  M model(const Options& options) const {
    check();
    RandomGenerator rng = RandomGenerator::idle();
    M model(options, rng);
    try {
      load_state_dict(model, entries_);
    } catch (const ValueError& error) {
      throw source_.refuse({"does not fit the model: ", error.what()});
    }
    return model;
  }

 private:
  void check() const {
    std::string unexpected;
    int count = 0;
    constexpr int shown = 12;
    for (const std::string& name : source_.names()) {
      if (used_.count(name) == 0 && ++count <= shown) append_listed(unexpected, name);
    }
    if (count > shown) unexpected += " and " + std::to_string(count - shown) + " more";
    std::string problems;
    if (!missing_.empty()) problems += "missing: " + missing_ + ". ";
    if (!misshaped_.empty()) problems += "wrong shape: " + misshaped_ + ". ";
    if (!unexpected.empty()) problems += "unexpected: " + unexpected + ". ";
    if (!problems.empty())
      throw source_.refuse({"does not fit its configuration; ", problems.substr(0, problems.size() - 1)});
  }

  // Sets our tensor `ours` to one whose first values are those of theirs, one tensor after the other.
  void put(const std::string& ours, Tensor<T> whole, const std::vector<std::string>& theirs) {
    T* out = whole.data();
    for (const std::string& name : theirs) {
      const Tensor<T> part = source_.template tensor<T>(name);
      out = std::copy_n(part.data(), part.numel(), out);
    }
    add(ours, std::move(whole));
  }

  bool fits(const std::vector<std::string>& theirs, const Shape& shape) {
    bool there = true;
    index_t rows = 0;
    for (const std::string& name : theirs) {
      used_.insert(name);
      if (!source_.contains(name)) {
        if (missing_.size() < 1000) append_listed(missing_, name);
        there = false;
      } else if (there) {
        const Shape& found = source_.shape(name);
        const Shape expected = theirs.size() == 1 ? shape : shape.with(0, found.rank() == 0 ? 0 : found[0]);
        // A row vector (1, n) is accepted as a vector.
        if (found != expected && !(theirs.size() == 1 && shape.rank() == 1 && found == Shape{1, shape[0]})) {
          if (misshaped_.size() < 1000)
            append_listed(misshaped_, name + " is " + found.str() + ", must be " + expected.str());
          there = false;
        } else {
          rows += shape.rank() == 0 ? 0 : expected[0];
        }
      }
    }
    if (there && theirs.size() > 1 && rows != shape[0]) {
      append_listed(misshaped_, theirs.front() + " and those beside it have " + std::to_string(rows) +
                                    " rows, must be " + std::to_string(shape[0]));
      there = false;
    }
    return there;
  }

  const Source& source_;
  std::vector<StateEntry<T>> entries_;
  std::set<std::string> used_;
  std::string missing_, misshaped_;
};

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void require_no_languages(const std::filesystem::path& path,
                                                  const ImportOptions& options) {
  for (const auto& [name, value] : {std::pair{"source_language", &options.source_language},
                                    std::pair{"target_language", &options.target_language}}) {
    if (value->empty()) continue;
    throw ValueError(
        "import",
        {"'", path.string(), "' is not a multilingual model, so ", name, " must be empty, not '", *value,
         "'; if the model expects a token such as >>deu<< before each text, give it as "
         "source_text (--prefix)"});
  }
}

}  // namespace eigenformer::detail

#endif
