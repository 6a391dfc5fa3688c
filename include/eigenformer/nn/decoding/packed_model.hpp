#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

namespace detail {

// Calls products(module) or tables(module) of every module of a model, sub-modules after their owner's
// fields.
template <class F, class Member>
void visit_modules(Member& member, F& f) {
  using M = std::remove_const_t<Member>;
  if constexpr (is_parameter<M>::value || is_buffer<M>::value) {
  } else if constexpr (is_vector<M>::value) {
    for (auto& item : member) visit_modules(item, f);
  } else if constexpr (is_optional<M>::value) {
    if (member) visit_modules(*member, f);
  } else {
    M::fields(member, [&](const auto&, auto& field) { visit_modules(field, f); });
    f(member);
  }
}

// Calls f(weight, counts) for every matrix of a model that is packed: inference multiplies by so many of its
// rows at a time. Embeddings that are no one's projection stay tables in float32, where packing would save
// nothing.
template <class M, class F>
void for_each_packed_weight(const M& model, WeightFormat format, F&& f) {
  static_assert(Module<M>,
                "a model whose weights are packed needs `static void fields(auto& self, auto&& visit)`");
  using P = Parameter<typename M::value_type>;
  std::unordered_set<std::uint64_t> seen;
  const auto product = [&](const P& weight, std::initializer_list<index_t> counts) {
    if (weight.defined() && seen.insert(weight.id()).second) f(weight, counts);
  };
  const auto table = [&](const P& weight) { product(weight, {weight.shape()[0]}); };
  const auto products = [&]<class X>(const X& module) {
    if constexpr (requires { X::products(module, product); }) X::products(module, product);
  };
  visit_modules(model, products);
  if (format == WeightFormat::float32) return;
  const auto tables = [&]<class X>(const X& module) {
    if constexpr (requires { X::tables(module, table); }) X::tables(module, table);
  };
  visit_modules(model, tables);
}

inline void pack_weight(kernels::PackedWeights& packed, const Parameter<float>& weight,
                        std::initializer_list<index_t> counts, WeightFormat format) {
  require_memory("pack_weights", weight);
  const index_t in = weight.shape()[1];
  index_t first = 0;
  for (const index_t count : counts) {
    try {
      packed.add(weight.id(), first,
                 kernels::PackedMatrix::pack(weight.value().data() + first * in, count, in, false, format));
    } catch (const ValueError& error) {
      throw ValueError("pack_weights", "'" + weight.name() + "' from row " + std::to_string(first) +
                                           " on cannot be packed: " + error.what());
    }
    first += count;
  }
}

}  // namespace detail

/// The linear weights of a model, packed once for inference: hand them to Context::with_packed_weights.
///
///     auto packed = ef::pack_weights(model, ef::WeightFormat::int8);
///     auto ctx = ef::Context<float>::inference().with_packed_weights(packed);
///     auto sentences = ef::generate(model, ctx, sources);
///
/// model: any module of float. Its modules name their matrices: `static void products(auto& self, auto&&
/// visit)` calls visit(weight, {rows}) for each, with the numbers of rows that are one product, and `static
/// void tables(auto& self, auto&& visit)` calls visit(weight) for what is looked up by rows. Linear,
/// attention, feed-forward networks, embeddings and the models here have them; a matrix that is in no list
/// stays as it is.
///
/// They are a copy of the parameters' values now; pack again after training on. In bf16 and int8 embeddings
/// are packed, too; vectors stay as they are. Throws ValueError for int8 weights that are not finite and for
/// a model whose weights' memory was given back.
template <class Model>
std::shared_ptr<const kernels::PackedWeights> pack_weights(const Model& model,
                                                           WeightFormat format = WeightFormat::float32) {
  static_assert(std::is_same_v<typename Model::value_type, float>, "only models of float can be packed");
  auto packed = std::make_shared<kernels::PackedWeights>();
  detail::for_each_packed_weight(model, format,
                                 [&](const Parameter<float>& weight, std::initializer_list<index_t> counts) {
                                   detail::pack_weight(*packed, weight, counts, format);
                                 });
  return packed;
}

/// Gives the memory of a model's packed weights back to the Runtime's pool: from now on the model decodes
/// with them and cannot be trained, saved or copied, which throws ValueError. An embedding
/// that is tied to the projection is then looked up in its packed weights.
template <class Model>
void release_packed_weights(Model& model, const kernels::PackedWeights& packed) {
  for_each_parameter(model, [&](const std::string&, Parameter<float>& p) {
    if (packed.contains(p.id())) p.value() = Tensor<float>::without_storage(p.shape());
  });
}

/// pack_weights and release_packed_weights at once, matrix by matrix, so that never more than one matrix is
/// held twice; what the pool then caches goes back to the operating system. Throws as pack_weights does; the
/// model may then be packed in part and is of no more use.
template <class Model>
std::shared_ptr<const kernels::PackedWeights> pack_weights_in_place(
    Model& model, WeightFormat format = WeightFormat::float32) {
  static_assert(std::is_same_v<typename Model::value_type, float>, "only models of float can be packed");
  auto packed = std::make_shared<kernels::PackedWeights>();
  detail::for_each_packed_weight(model, format,
                                 [&](const Parameter<float>& weight, std::initializer_list<index_t> counts) {
                                   detail::pack_weight(*packed, weight, counts, format);
                                   weight.handle()->value = Tensor<float>::without_storage(weight.shape());
                                   Runtime::instance().pool().trim();
                                 });
  return packed;
}

}  // namespace eigenformer
