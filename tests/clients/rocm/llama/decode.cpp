// Loads a model with all layers on the GPU and decodes some tokens, with the real llama.cpp.
//
// When the card is full, llama.cpp itself prints the error and ends the process with status 1, in the phase
// where it happens; standard output then stops after the last line of this program that was reached.
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int ALL_LAYERS = 999;
constexpr int PROMPT[] = {1, 300, 301, 302};
constexpr int PROMPT_LENGTH = sizeof PROMPT / sizeof PROMPT[0];

struct options {
    const char *model = nullptr;
    int context_tokens = 8192;
    int tokens = 8;
};

bool read_options(int argc, char **argv, options &chosen)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--model") == 0)
            chosen.model = argv[i + 1];
        else if (strcmp(argv[i], "--context") == 0)
            chosen.context_tokens = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--tokens") == 0)
            chosen.tokens = atoi(argv[i + 1]);
        else
            return false;
    }
    return argc % 2 == 1 && chosen.model && chosen.context_tokens > 0 && chosen.tokens > 0;
}

llama_token most_likely(llama_context *context, const llama_model *model)
{
    const float *logits = llama_get_logits(context);
    llama_token best = 0;
    for (llama_token token = 1; token < llama_n_vocab(model); token++) {
        if (logits[token] > logits[best])
            best = token;
    }
    return best;
}

// The values mean nothing on a card whose kernels do nothing, so only their number is printed.
bool decode(llama_context *context, const llama_model *model, int tokens)
{
    llama_token batch[PROMPT_LENGTH];
    memcpy(batch, PROMPT, sizeof PROMPT);
    int length = PROMPT_LENGTH, position = 0;
    for (int decoded = 0; decoded < tokens; decoded++) {
        if (llama_decode(context, llama_batch_get_one(batch, length, position, 0)) != 0)
            return false;
        position += length;
        length = 1;
        batch[0] = most_likely(context, model);
    }
    printf("decoded %d tokens\n", tokens);
    return true;
}

int run(const options &chosen)
{
    llama_backend_init(false);
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = ALL_LAYERS;
    llama_model *model = llama_load_model_from_file(chosen.model, model_params);
    if (!model)
        return 3;
    printf("model loaded: %llu parameters\n", (unsigned long long)llama_model_n_params(model));

    llama_context_params context_params = llama_context_default_params();
    context_params.seed = 1;
    context_params.n_ctx = chosen.context_tokens;
    context_params.n_threads = context_params.n_threads_batch = 1;
    llama_context *context = llama_new_context_with_model(model, context_params);
    if (!context)
        return 4;
    printf("context made: %d tokens\n", llama_n_ctx(context));

    bool complete = decode(context, model, chosen.tokens);
    llama_free(context);
    llama_free_model(model);
    llama_backend_free();
    printf("all freed\n");
    return complete ? 0 : 5;
}

} // namespace

int main(int argc, char **argv)
{
    // llama.cpp ends the process with exit(); what was printed before has to be there in any case.
    setvbuf(stdout, nullptr, _IOLBF, 0);
    options chosen;
    if (!read_options(argc, argv, chosen)) {
        fprintf(stderr, "usage: %s --model FILE [--context TOKENS] [--tokens COUNT]\n", argv[0]);
        return 2;
    }
    return run(chosen);
}
