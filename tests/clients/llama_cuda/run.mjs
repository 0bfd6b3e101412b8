// Loads a model with all layers on the card, generates 8 tokens, gives everything back:
//
//     run.mjs LLAMA_CUDA_DIR MODEL.gguf
//
// With LLAMA_LOG_LEVEL=info it prints on standard error what llama.cpp says of its buffers, too.
// LLAMA_CUDA_DIR is the folder that holds node_modules. Prints what is the same in each run. Without the checks of
// node-llama-cpp, which refuses from an estimate of its own before CUDA is asked, memory runs out where it really does;
// then the error is printed and the exit status is 1.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [directory, modelPath] = process.argv.slice(2);
const resolve = createRequire(`${directory}/package.json`).resolve;
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(resolve("node-llama-cpp")));

const TOKENS = 8;
const ignoreMemorySafetyChecks = true;

const llama = await getLlama({
    gpu: "cuda",
    build: "never",
    vramPadding: 0,
    logLevel: LlamaLogLevel[process.env.LLAMA_LOG_LEVEL ?? "error"],
    logger: (level, message) => console.error(`llama.cpp ${level}: ${message.trim()}`)
});
console.log(`gpu: ${llama.gpu}`);

let phase = "load";
try {
    const model = await llama.loadModel({modelPath, gpuLayers: "max", ignoreMemorySafetyChecks, useMmap: false});
    console.log(`layers on the card: ${model.gpuLayers}`);
    phase = "context";
    const context = await model.createContext({
        contextSize: 8192, batchSize: 512, threads: 1, ignoreMemorySafetyChecks, failedCreationRemedy: false
    });
    console.log(`context: ${context.contextSize}`);
    phase = "generate";
    const sequence = context.getSequence();
    let generated = 0;
    for await (const token of sequence.evaluate(model.tokenize("some words to begin with"), {temperature: 0})) {
        generated += typeof token === "number" ? 1 : 0;
        if (generated === TOKENS) break;
    }
    console.log(`tokens: ${generated}`);
    phase = "dispose";
    await context.dispose();
    await model.dispose();
    await llama.dispose();
    console.log("disposed");
} catch (error) {
    console.log(`failed in ${phase}: ${error.message.split("\n")[0]}`);
    process.exitCode = 1;
}
