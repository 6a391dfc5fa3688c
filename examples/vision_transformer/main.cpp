/// A vision Transformer (Dosovitskiy et al. 2021) tells rings, squares, crosses and triangles apart, in
/// images that the program draws under noise. A convolution makes a row of each 4 x 4 pixels; the encoder
/// lets the rows attend to each other. Prints the share of new images that it names correctly, and fails if
/// it is below 85 % after at least 600 steps (the default).
///
///     vision_transformer [STEPS]

#include <cstdio>

#include "../arguments.hpp"
#include "../shapes.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

namespace {

constexpr ef::index_t width = 48, patch = 4,
                      patches = (example::image_size / patch) * (example::image_size / patch);

struct VisionTransformer {
  using value_type = float;

  ef::Conv2d<float> patch_embedding;
  ef::Parameter<float> positions;  // (patches, width)
  ef::Encoder<float> encoder;
  ef::Linear<float> head;

  explicit VisionTransformer(ef::RandomGenerator& rng)
      : patch_embedding({.in_channels = 1, .out_channels = width, .kernel_size = patch, .stride = patch},
                        rng),
        positions(ef::init::normal<float>({patches, width}, rng, 0, 0.2)),
        encoder({.num_layers = 2,
                 .layer = {.d_model = width,
                           .num_heads = 4,
                           .dim_feedforward = 96,
                           .dropout = {0},
                           .activation = ef::Activation::gelu,
                           .norm_first = true}},
                rng),
        head({.in_features = width, .out_features = 4}, rng) {
    ef::name_parameters(*this);
  }

  /// Logits (N, 4) of images (N, 1, 16, 16).
  ef::Var<float> operator()(const ef::Context<float>& ctx, const ef::Var<float>& images) const {
    const auto features = ef::flatten(patch_embedding(ctx, images), 2);  // (N, width, patches)
    const auto rows = ef::transpose(features) + ctx.use(positions);      // (N, patches, width)
    return head(ctx, ef::mean(encoder(ctx, rows), {1}));
  }

  static void fields(auto& self, auto&& visit) {
    visit("patch_embedding", self.patch_embedding);
    visit("positions", self.positions);
    visit("encoder", self.encoder);
    visit("head", self.head);
  }
};

int train_and_test(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 600);
  ef::RandomGenerator rng(1);
  VisionTransformer model(rng);
  ef::Adam<float> optimizer(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  std::printf("%lld parameters\n", static_cast<long long>(ef::count_parameters(model)));
  for (ef::index_t step = 1; step <= steps; ++step) {
    const example::Shapes batch(64, rng);
    ef::Tape<float> tape;
    gradients.zero();
    const auto logits = model(ef::Context<float>::training(tape, rng), batch.images);
    const auto loss = ef::cross_entropy(logits, batch.labels);
    tape.backward(loss, gradients);
    optimizer.step(gradients, ef::schedule::cosine(step, 3e-3, 30, steps + 31),
                   ef::clip_factor(gradients, 1.0).factor);
    if (step % 100 == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(step), static_cast<double>(loss.item()));
  }
  const example::Shapes test(1000, rng);
  const auto answers = ef::argmax(model(ef::Context<float>::inference(), test.images), 1);
  return example::accuracy(test, answers) >= 0.85 || steps < 600 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, train_and_test); }
