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

// Calls f(module) for every module of a model, after f of the module's fields.
template <class F, class Member>
void visit_modules(Member& member, F& f) {
  using M = std::remove_const_t<Member>;
  if constexpr (is_instance<M, Parameter> || is_instance<M, Buffer>) {
  } else if constexpr (is_instance<M, std::vector>) {
    for (auto& item : member) visit_modules(item, f);
  } else if constexpr (is_instance<M, std::optional>) {
    if (member) visit_modules(*member, f);
  } else {
    M::fields(member, [&](const auto&, auto& field) { visit_modules(field, f); });
    f(member);
  }
}

// Calls f(weight, counts) for every matrix that is packed; each count is the number of rows of one product.
// In float32, embeddings that are not also a projection stay unpacked, because packing would save nothing.
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

// Packs the weights of a model; calls packed_one(weight) after each.
template <class Model, class F>
std::shared_ptr<const kernels::PackedWeights> pack_each(const Model& model, WeightFormat format,
                                                        const F& packed_one) {
  static_assert(std::is_same_v<typename Model::value_type, float>, "only models of float can be packed");
  auto packed = std::make_shared<kernels::PackedWeights>();
  for_each_packed_weight(
      model, format, [&](const Parameter<float>& weight, std::initializer_list<index_t> counts) {
        require_memory("pack_weights", weight);
        const index_t in = weight.shape()[1];
        index_t first = 0;
        for (const index_t count : counts) {
          try {
            packed->add(weight.id(), first,
                        kernels::PackedMatrix::pack(weight.value().data() + first * in, count, in, format));
          } catch (const ValueError& error) {
            throw ValueError("pack_weights", {"'", weight.name(), "' from row ", first,
                                              " on cannot be packed: ", error.what()});
          }
          first += count;
        }
        packed_one(weight);
      });
  return packed;
}

}  // namespace detail

/// Packs the linear weights of a model for inference; pass the result to Context::with_packed_weights.
///
///     auto packed = ef::pack_weights(model, ef::WeightFormat::int8);
///     auto ctx = ef::Context<float>::inference().with_packed_weights(packed);
///     auto sentences = ef::generate(model, ctx, sources);
///
/// model: any module of float. Its modules list their matrices: `static void products(auto& self, auto&&
/// visit)` calls visit(weight, {rows}) for each, where each number of rows makes one product, and `static
/// void tables(auto& self, auto&& visit)` calls visit(weight) for tables that are looked up by row. Linear,
/// attention, feed-forward networks, embeddings and this library's models have them; other matrices are not
/// packed.
///
/// The result is a copy of the current values; pack again after further training. In bf16 and int8 embeddings
/// are packed too, but never vectors. Throws ValueError for int8 weights that are not finite and for a model
/// whose weights' memory was released.
template <class Model>
std::shared_ptr<const detail::kernels::PackedWeights> pack_weights(
    const Model& model, WeightFormat format = WeightFormat::float32) {
  return detail::pack_each(model, format, [](const Parameter<float>&) {});
}

/// Returns the memory of a model's packed weights to the Runtime's pool. The model can then decode with these
/// packed weights only; training, saving or copying it throws ValueError. An embedding that is tied to the
/// projection is looked up in its packed weights.
template <class Model>
void release_packed_weights(Model& model, const detail::kernels::PackedWeights& packed) {
  for_each_parameter(model, [&](const std::string&, Parameter<float>& p) {
    if (packed.contains(p.id())) p.value() = Tensor<float>::without_storage(p.shape());
  });
}

/// pack_weights() and release_packed_weights() matrix by matrix, so that at most one matrix exists twice; the
/// freed memory is returned to the operating system. Throws as pack_weights() does; the model may then be
/// partly packed and is no longer usable.
template <class Model>
std::shared_ptr<const detail::kernels::PackedWeights> pack_weights_in_place(
    Model& model, WeightFormat format = WeightFormat::float32) {
  return detail::pack_each(model, format, [](const Parameter<float>& weight) {
    weight.handle()->value = Tensor<float>::without_storage(weight.shape());
    Runtime::instance().pool().trim();
  });
}

}  // namespace eigenformer
