#pragma once

#include <utility>

#include "eigenformer/nn/stacks/decoder.hpp"

namespace eigenformer {

/// The masks of a Transformer; nothing is masked by default. Masks are joined with `&`, for example with key
/// padding: `{.source = AttentionMask::key_padding(p), .target = AttentionMask::causal(), .memory =
/// AttentionMask::key_padding(p)}`.
struct TransformerMasks {
  AttentionMask source{};  ///< of the encoder's self-attention
  AttentionMask target{};  ///< of the decoder's self-attention
  AttentionMask memory{};  ///< of the decoder's attention to the encoder's output
};

/// The masks of a Transformer under the six argument names of PyTorch's nn.Transformer.forward:
///
///     auto y = model(ctx, source, target,
///                    ef::PyTorchMasks{.tgt_mask = ef::AttentionMask::causal(),
///                                     .src_key_padding_mask = ef::AttentionMask::key_padding(p)});
///
/// A boolean attn_mask of PyTorch corresponds to AttentionMask::block(mask), a float one to
/// AttentionMask::additive(mask). Its shape is (Lq, Lk) for all sequences; for PyTorch's (B H, Lq, Lk) pass
/// mask.reshape({B, H, Lq, Lk}). A key_padding_mask (B, Lk) corresponds to AttentionMask::key_padding(mask).
struct PyTorchMasks {
  AttentionMask src_mask{};                 ///< of the encoder's self-attention
  AttentionMask tgt_mask{};                 ///< of the decoder's self-attention
  AttentionMask memory_mask{};              ///< of the decoder's attention to the encoder's output
  AttentionMask src_key_padding_mask{};     ///< of source tokens as keys of the encoder
  AttentionMask tgt_key_padding_mask{};     ///< of target tokens as keys of the decoder
  AttentionMask memory_key_padding_mask{};  ///< of source tokens as keys of the decoder

  /// The same masks, each joined with its key padding mask.
  operator TransformerMasks() const {  // NOLINT(google-explicit-constructor)
    return {.source = src_mask & src_key_padding_mask,
            .target = tgt_mask & tgt_key_padding_mask,
            .memory = memory_mask & memory_key_padding_mask};
  }
};

/// An encoder and a decoder on embeddings. Vaswani et al. 2017; names, final norms and masks as in PyTorch's
/// nn.Transformer.
///
///     ef::Transformer<float> model(
///         {.layer = {.d_model = 12, .num_heads = 3}, .encoder = {.num_layers = 2}}, rng);
///     auto y = model(ctx, source, target, {.target = ef::AttentionMask::causal()});  // (B, T, 12)
template <class T = float, class EncoderLayerType = EncoderLayer<T>, class DecoderLayerType = DecoderLayer<T>>
struct Transformer {
  using value_type = T;  ///< element type, float or double

  Stack<EncoderLayerType> encoder;  ///< source rows to memory
  Stack<DecoderLayerType> decoder;  ///< target rows and memory to output rows

  /// Weights start Xavier uniform, biases zero. Throws ValueError that names the invalid field.
  Transformer(const TransformerOptions& options, RandomGenerator& rng)
      : encoder(
            options_of<EncoderLayerType>(detail::validated("transformer", options).encoder_options(), true),
            rng),
        decoder(options_of<DecoderLayerType>(options.decoder_options(), false), rng) {
    name_parameters(*this);
  }

  /// A given encoder and decoder. Throws ValueError if their widths differ.
  Transformer(Stack<EncoderLayerType> given_encoder, Stack<DecoderLayerType> given_decoder)
      : encoder(std::move(given_encoder)), decoder(std::move(given_decoder)) {
    if (encoder.d_model() != decoder.d_model()) {
      throw ValueError("transformer", {"encoder has d_model ", encoder.d_model(),
                                       ", must be that of the decoder, which is ", decoder.d_model()});
    }
    name_parameters(*this);
  }

  /// source: (B, S, D), target: (B, T, D), or (S, D) and (T, D) for one sequence. Returns the target's shape.
  /// Throws ShapeError if shapes or masks do not match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source, const Var<T>& target,
                                  const TransformerMasks& masks = {}) const {
    return (*this)(ctx, source, detail::full_layout("transformer", source.shape()), target,
                   detail::full_layout("transformer", target.shape()), masks);
  }

  /// The same for rows in the given layouts, padded or packed. Padding of a layout is masked as a key.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source,
                                  const SequenceLayout& source_layout, const Var<T>& target,
                                  const SequenceLayout& target_layout,
                                  const TransformerMasks& masks = {}) const {
    const Memory<T> memory(encoder(ctx, source, source_layout, masks.source), source_layout);
    return decoder(ctx, target, target_layout, memory, DecoderMasks{masks.target, masks.memory});
  }

  /// Features of a row.
  index_t d_model() const { return encoder.d_model(); }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("encoder", self.encoder);
    visit("decoder", self.decoder);
  }

 private:
  // Keys after the query have buckets of their own in encoders and not in decoders.
  template <class L>
  static StackOptions<typename L::Options> options_of(const StackOptions<LayerOptions>& stack, bool both) {
    return detail::options_for<L>(detail::with_directions(stack, both));
  }
};

EIGENFORMER_MODULE_INSTANCES(Transformer)

}  // namespace eigenformer
