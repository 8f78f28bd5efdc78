"""The libraries, one row each: what to install, what to import, which programs train, and which of its own tests run.

A row's requirements are pip's. They may demand torch: none is installed (see `environments.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class OwnTests:
    """The tests of a library itself, run in a checkout of its sources that the user has.

    Args:
        repository: "owner/name". The checkout is the folder `name` of `--sources`, at the tag of the installed version.
        tests: Files or folders in the checkout, given to pytest.
        arguments: Further arguments of pytest, such as `("-k", "not slow")`.
        left_out: Patterns of test ids (`fnmatch`, such as `"*test_download*"`) that are not run, and why.
        requirements: What the tests need beyond the library and pytest.
        seconds: The time limit of one test.
        folder: The folder of the checkout in which pytest runs, to which `tests` are relative.
        together: How many files or folders run in one process: importing the library takes long.
        one_in: Of how many tests one is run, chosen by its name: of some libraries all of them take hours.
        variables: Variables of the environment that the tests ask for.
    """

    repository: str
    tests: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    seconds: int = 120
    folder: str = ""
    together: int = 1
    one_in: int = 1
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """One library.

    Args:
        name: As the package index spells it, which also gives its version.
        requirements: What pip installs, besides NumPy and ml_dtypes. The newest versions that accept torch 2.13.
        imports: Modules to import.
        programs: Names of programs in `programs/`, without `.py`.
        own: Its own tests, if they are run.
        quick: Whether continuous integration runs its import and its first program.
        gaps: What is known not to work, one line each.
        apart: Why it cannot share an environment with all others, if it cannot.
    """

    name: str
    requirements: tuple[str, ...]
    imports: tuple[str, ...]
    programs: tuple[str, ...] = ()
    own: OwnTests | None = None
    quick: bool = False
    gaps: tuple[str, ...] = ()
    apart: str = ""


# Why tests of scripting are left out.
_SCRIPTS = "torch.jit.script compiles less than PyTorch's"

# Of transformers' own tests: what downloads models, needs a GPU, or compiles.
_TRANSFORMERS_LEFT_OUT = {
    "*IntegrationTest*": "downloads models",
    "*compil*": "compiles",
    "*test_*export*": "exports programs",
    "*test_*flash*": "needs a GPU",
    "*test_*flex*": "compiles",
    "*test_*tensor_parallel*": "starts processes of torch's own launcher",
    "*test_*tp_*": "starts processes of torch's own launcher",
    "*test_pipeline_*": "downloads tokenizers",
    "*test_training_overfit*": "takes minutes",
}
_TRANSFORMERS_MODELS = (  # the most used first
    "gpt2", "bert", "llama", "t5", "vit", "roberta", "qwen2", "distilbert", "mistral", "clip", "bart", "whisper",
    "gemma", "wav2vec2", "phi", "mamba", "detr", "deberta_v2", "opt", "gpt_neox", "falcon", "albert", "electra",
    "mpnet", "bloom", "swin", "deit", "convnext", "segformer", "xlm_roberta", "qwen3", "deberta", "gemma2", "phi3",
    "mixtral", "resnet", "dinov2", "siglip", "blip", "gptj", "gpt_neo", "gpt_bigcode", "codegen", "mt5", "mbart",
    "pegasus", "marian", "xlnet", "modernbert", "longformer", "layoutlm", "mobilebert", "hubert", "speech_to_text",
    "beit", "convnextv2", "dpt", "swinv2", "yolos", "regnet", "olmo", "granite", "stablelm", "starcoder2", "roformer",
    "squeezebert",
)  # fmt: skip

# timm's models whose own tests are run: small ones of each kind.
_TIMM_MODELS = (
    "cait_xxs24_224", "convnext_atto", "deit_tiny_patch16", "edgenext_xx_small", "efficientnet_b0", "lcnet_035",
    "levit_128s", "mixer_s32", "mobilenetv3_small_050", "mobilevit_xxs", "naflexvit_direct", "pvt_v2_b0", "regnetx_002",
    "regnety_002", "resnet10t", "resnet18", "test_byobnet", "test_convnext", "test_efficientnet", "test_mambaout",
    "test_nfnet", "test_resnet", "test_vit", "tinynet_e", "vit_tiny_patch16_224", "xcit_nano",
)  # fmt: skip

LIBRARIES = (
    Library(
        "accelerate",
        requirements=("accelerate",),
        imports=("accelerate",),
        programs=("accelerate_loop",),
        gaps=("stateful data loaders are torchdata's, which builds on private parts of PyTorch's own data loader",),
        own=OwnTests(
            "huggingface/accelerate",
            tests=tuple(
                f"tests/test_{name}.py"
                for name in (
                    "accelerator",
                    "big_modeling",
                    "cpu",
                    "data_loader",
                    "dataclasses",
                    "metrics",
                    "tracking",
                    "grad_sync",
                    "hooks",
                    "kwargs_handlers",
                    "logging",
                    "memory_utils",
                    "modeling_utils",
                    "offload",
                    "optimizer",
                    "scheduler",
                    "state_checkpointing",
                    "utils",
                )
            ),
            requirements=("accelerate==1.14.0", "parameterized", "transformers", "evaluate", "mpi4py", "mpich"),
            seconds=300,
            together=20,
            left_out={"*multi_*": "needs several GPUs", "*test_*dynamo*": "compiles", "*test_*compil*": "compiles"},
        ),
        quick=True,
    ),
    Library(
        "array-api-compat",
        requirements=("array-api-compat",),
        imports=("array_api_compat", "array_api_compat.torch"),
        programs=("array_api_compat_functions",),
    ),
    Library(
        "asteroid-filterbanks",
        requirements=("asteroid-filterbanks",),
        imports=("asteroid_filterbanks",),
        programs=("asteroid_filterbanks_audio",),
    ),
    Library(
        "autoray",
        requirements=("autoray",),
        imports=("autoray",),
        programs=("autoray_backends",),
    ),
    Library(
        "botorch",
        requirements=("botorch",),
        imports=("botorch", "botorch.models", "botorch.acquisition", "botorch.optim"),
        programs=("botorch_loop",),
        own=OwnTests(
            "pytorch/botorch",
            tests=("test/acquisition", "test/models", "test/optim", "test/posteriors", "test/sampling", "test/utils"),
            requirements=("botorch==0.15.1",),
            one_in=20,
        ),
        gaps=("a product with one column may differ in the last bit from that with two: NumPy's BLAS rounds so",),
    ),
    Library(
        "captum",
        requirements=("captum",),
        imports=("captum.attr", "captum.concept", "captum.influence"),
        programs=("captum_attributions",),
        own=OwnTests(
            "pytorch/captum",
            tests=("tests/attr", "tests/concept", "tests/metrics", "tests/module", "tests/robust", "tests/utils"),
            requirements=("parameterized", "scikit-learn"),
            left_out={
                "*llm*": "downloads models",
                "*Test_jit*": _SCRIPTS,
                "*test_jit*": _SCRIPTS,
            },
            one_in=8,
        ),
    ),
    Library(
        "chemprop",
        requirements=("chemprop",),
        imports=("chemprop", "chemprop.data", "chemprop.models", "chemprop.nn"),
        programs=("chemprop_molecules",),
    ),
    Library(
        "datasets",
        requirements=("datasets",),
        imports=("datasets",),
        programs=("datasets_formats",),
    ),
    Library(
        "denoising-diffusion-pytorch",
        requirements=("denoising-diffusion-pytorch",),
        imports=("denoising_diffusion_pytorch",),
        programs=("denoising_diffusion_pytorch_images",),
    ),
    Library(
        "diffusers",
        requirements=("diffusers", "transformers"),
        imports=("diffusers", "diffusers.models", "diffusers.schedulers"),
        programs=("diffusers_models",),
        own=OwnTests(
            "huggingface/diffusers",
            tests=(
                "tests/schedulers",
                "tests/models/unets/test_models_unet_2d.py",
                "tests/models/unets/test_models_unet_2d_condition.py",
                "tests/models/autoencoders/test_models_autoencoder_kl.py",
                "tests/others/test_ema.py",
                "tests/others/test_training.py",
                "tests/others/test_config.py",
            ),
            together=20,
            one_in=10,
            requirements=("diffusers==0.40.0", "parameterized", "accelerate", "torchsde"),
            left_out={
                "*compile*": "compiles",
                "*Integration*": "downloads models",
                "*lora*": "needs peft's main branch",
            },
        ),
        quick=True,
    ),
    Library(
        "e3nn",
        requirements=("e3nn",),
        imports=("e3nn.o3", "e3nn.nn"),
        programs=("e3nn_equivariant",),
    ),
    Library(
        "efficientnet-pytorch",
        requirements=("efficientnet-pytorch",),
        imports=("efficientnet_pytorch",),
        programs=("efficientnet_pytorch_images",),
    ),
    Library(
        "einops",
        requirements=("einops",),
        imports=("einops", "einops.layers.torch"),
        programs=("einops_layers",),
        own=OwnTests(
            "arogozhnikov/einops",
            tests=("einops/tests",),
            variables={"EINOPS_TEST_BACKENDS": "numpy,torch"},
            left_out={
                "*torch_compile*": "compiles",
                "*scripted*": _SCRIPTS,
                "*torch_jit*": _SCRIPTS,
            },
        ),
        quick=True,
    ),
    Library(
        "einx",
        requirements=("einx",),
        imports=("einx",),
        programs=("einx_notation",),
    ),
    Library(
        "ema-pytorch",
        requirements=("ema-pytorch",),
        imports=("ema_pytorch",),
        programs=("ema_pytorch_average",),
        own=OwnTests("lucidrains/ema-pytorch", tests=("tests",)),
    ),
    Library(
        "entmax",
        requirements=("entmax",),
        imports=("entmax",),
        programs=("entmax_losses",),
        own=OwnTests("deep-spin/entmax", tests=("entmax",)),
    ),
    Library(
        "evotorch",
        requirements=("evotorch",),
        imports=("evotorch", "evotorch.algorithms", "evotorch.neuroevolution", "evotorch.operators"),
        programs=("evotorch_search",),
    ),
    Library(
        "fair-esm",
        requirements=("fair-esm",),
        imports=("esm", "esm.model.esm2", "esm.model.msa_transformer"),
        programs=("fair_esm_proteins",),
    ),
    Library(
        "flair",
        requirements=("flair",),
        imports=("flair",),
        programs=("flair_tagger",),
    ),
    Library(
        "foolbox",
        requirements=("foolbox",),
        imports=("foolbox",),
        programs=("foolbox_attacks",),
    ),
    Library(
        "geomloss",
        requirements=("geomloss",),
        imports=("geomloss",),
        programs=("geomloss_clouds",),
    ),
    Library(
        "geoopt",
        requirements=("geoopt",),
        imports=("geoopt",),
        programs=("geoopt_manifolds",),
    ),
    Library(
        "gluonts",
        requirements=("gluonts[torch]",),
        imports=("gluonts.torch", "gluonts.torch.distributions"),
        programs=("gluonts_series",),
    ),
    Library(
        "gpytorch",
        requirements=("gpytorch",),
        imports=("gpytorch",),
        programs=("gpytorch_regression",),
        own=OwnTests(
            "cornellius-gp/gpytorch",
            tests=("test",),
            arguments=("--ignore=test/examples",),
            one_in=5,
        ),
    ),
    Library(
        "higher",
        requirements=("higher",),
        imports=("higher",),
        programs=("higher_maml",),
        own=OwnTests("facebookresearch/higher", tests=("tests",), requirements=("torchvision", "parameterized")),
    ),
    Library(
        "jaxtyping",
        requirements=("jaxtyping",),
        imports=("jaxtyping",),
        programs=("jaxtyping_shapes",),
    ),
    Library(
        "julius",
        requirements=("julius",),
        imports=("julius",),
        programs=("julius_filters",),
    ),
    Library(
        "kornia",
        requirements=("kornia",),
        imports=("kornia", "kornia.augmentation", "kornia.geometry"),
        programs=("kornia_vision",),
        own=OwnTests(
            "kornia/kornia",
            tests=tuple(
                f"tests/{name}"
                for name in ("augmentation", "color", "enhance", "filters", "geometry", "losses", "metrics")
            ),
            requirements=("kornia==0.9.0rc1", "scipy", "typing_extensions"),
            left_out={
                "*dynamo*": "compiles",
                "*jit*": _SCRIPTS,
                "*script*": _SCRIPTS,
                "*onnx*": "needs onnx",
            },
            one_in=50,
        ),
    ),
    Library(
        "laplace-torch",
        requirements=("laplace-torch",),
        imports=("laplace",),
        programs=("laplace_posterior",),
    ),
    Library(
        "lightly",
        requirements=("lightly",),
        imports=("lightly.loss", "lightly.models.modules", "lightly.transforms"),
        programs=("lightly_losses",),
    ),
    Library(
        "lightning",
        requirements=("lightning", "tensorboard", "mpi4py", "mpich"),
        imports=("lightning", "lightning.fabric", "lightning.pytorch"),
        programs=("lightning_trainer", "lightning_fabric_loop", "lightning_fsdp"),
        own=OwnTests(
            "Lightning-AI/pytorch-lightning",
            tests=(
                "tests/tests_fabric/accelerators",
                "tests/tests_fabric/loggers",
                "tests/tests_fabric/plugins",
                "tests/tests_fabric/strategies",
                "tests/tests_fabric/utilities",
                "tests/tests_fabric/test_connector.py",
                "tests/tests_fabric/test_fabric.py",
                "tests/tests_fabric/test_wrappers.py",
                "tests/tests_pytorch/accelerators",
                "tests/tests_pytorch/callbacks",
                "tests/tests_pytorch/checkpointing",
                "tests/tests_pytorch/core",
                "tests/tests_pytorch/loggers",
                "tests/tests_pytorch/loops",
                "tests/tests_pytorch/models",
                "tests/tests_pytorch/plugins",
                "tests/tests_pytorch/profilers",
                "tests/tests_pytorch/strategies",
                "tests/tests_pytorch/trainer",
                "tests/tests_pytorch/tuner",
                "tests/tests_pytorch/utilities",
            ),
            arguments=("-o", "addopts="),  # without --strict-markers: a marker is of a plugin
            requirements=(
                "lightning==2.6.5",
                "pytest-mock",
                "scikit-learn",
                "cloudpickle",
                "expecttest",
                "fastapi",
                "mpi4py",
                "mpich",
                "uvicorn",
            ),
            left_out={
                "*torchscript*": _SCRIPTS,
                "*compile*": "compiles",
                "*test_unwrap_objects?True?": "compiles",
                "*onnx*": "needs onnx",
                "*ddp*": "starts processes",
                "*_collective_calls*": "starts processes",
                "*test_default_process_group*": "starts processes",
                "*spawn*": "starts processes",
            },
            one_in=5,
        ),
        quick=True,
        gaps=("own tests: one looks for threads that were left, and finds a store's, which PyTorch has in C++",),
    ),
    Library(
        "linear-operator",
        requirements=("linear-operator",),
        imports=("linear_operator",),
        programs=("linear_operator_solves",),
        own=OwnTests(
            "cornellius-gp/linear_operator",
            tests=("test",),
            requirements=("scipy",),
            one_in=20,
        ),
    ),
    Library(
        "lion-pytorch",
        requirements=("lion-pytorch",),
        imports=("lion_pytorch",),
        programs=("lion_pytorch_steps",),
    ),
    Library(
        "local-attention",
        requirements=("local-attention",),
        imports=("local_attention",),
        programs=("local_attention_transformer",),
    ),
    Library(
        "loralib",
        requirements=("loralib",),
        imports=("loralib",),
        programs=("loralib_layers",),
    ),
    Library(
        "lpips",
        requirements=("lpips",),
        imports=("lpips",),
        programs=("lpips_distance",),
    ),
    Library(
        "mace-torch",
        requirements=("mace-torch",),
        imports=("mace", "mace.modules"),
        programs=("mace_torch_atoms",),
    ),
    Library(
        "monai",
        requirements=("monai", "einops", "scipy"),
        imports=("monai", "monai.networks.nets", "monai.transforms", "monai.losses", "monai.metrics"),
        programs=("monai_segmentation",),
        own=OwnTests(
            "Project-MONAI/MONAI",
            tests=("tests/losses", "tests/metrics", "tests/networks", "tests/transforms"),
            requirements=("parameterized", "scikit-image", "nibabel"),
            left_out={"*script*": _SCRIPTS, "*trt*": "needs a GPU", "*onnx*": "needs onnx"},
            one_in=40,
        ),
        gaps=("own tests: those of version 1.5",),
    ),
    Library(
        "neuralforecast",
        requirements=("neuralforecast",),
        imports=("neuralforecast", "neuralforecast.models", "neuralforecast.losses.pytorch"),
        programs=("neuralforecast_series",),
    ),
    Library(
        "nflows",
        requirements=("nflows",),
        imports=("nflows.flows",),
        programs=("nflows_density",),
    ),
    Library(
        "nnsight",
        requirements=("nnsight",),
        imports=("nnsight",),
        programs=("nnsight_interventions",),
    ),
    Library(
        "normflows",
        requirements=("normflows",),
        imports=("normflows",),
        programs=("normflows_density",),
    ),
    Library(
        "opacus",
        requirements=("opacus",),
        imports=("opacus",),
        programs=("opacus_private",),
        own=OwnTests(
            "pytorch/opacus",
            tests=("opacus/tests",),
            arguments=("-o", "python_files=*_test.py"),
            requirements=("hypothesis", "torchvision", "scikit-learn"),
            left_out={"*gpu*": "needs a GPU", "*multigpu*": "needs several GPUs"},
            one_in=8,
        ),
    ),
    Library(
        "open-clip-torch",
        requirements=("open-clip-torch",),
        imports=("open_clip",),
        programs=("open_clip_contrast",),
    ),
    Library(
        "openai-whisper",
        requirements=("openai-whisper",),
        imports=("whisper",),
        programs=("whisper_speech",),
    ),
    Library(
        "opt-einsum",
        requirements=("opt-einsum",),
        imports=("opt_einsum",),
        programs=("opt_einsum_paths",),
    ),
    Library(
        "optuna",
        requirements=("optuna",),
        imports=("optuna",),
        programs=("optuna_search",),
    ),
    Library(
        "peft",
        requirements=("peft",),
        imports=("peft",),
        programs=("peft_lora",),
        own=OwnTests(
            "huggingface/peft",
            tests=(
                "tests/test_bufferdict.py",
                "tests/test_config.py",
                "tests/test_custom_models.py",
                "tests/test_helpers.py",
                "tests/test_initialization.py",
                "tests/test_low_level_api.py",
                "tests/test_mixed.py",
                "tests/test_trainable_tokens.py",
                "tests/test_tuners_utils.py",
            ),
            arguments=("-o", "addopts="),
            together=20,
            one_in=20,
            left_out={"*compile*": "compiles"},
            requirements=("peft==0.20.0", "parameterized", "datasets", "scipy", "diffusers", "attrs"),
        ),
        quick=True,
    ),
    Library(
        "piq",
        requirements=("piq",),
        imports=("piq",),
        programs=("piq_quality",),
    ),
    Library(
        "pot",
        requirements=("pot",),
        imports=("ot",),
        programs=("pot_transport",),
    ),
    Library(
        "prodigyopt",
        requirements=("prodigyopt",),
        imports=("prodigyopt",),
        programs=("prodigyopt_steps",),
    ),
    Library(
        "pyro-ppl",
        requirements=("pyro-ppl",),
        imports=("pyro", "pyro.infer", "pyro.contrib.gp"),
        programs=("pyro_inference",),
        own=OwnTests(
            "pyro-ppl/pyro",
            tests=tuple(
                f"tests/distributions/test_{n}.py" for n in ("independent", "kl", "mask", "pickle", "torch_patch")
            ),
            requirements=("pyro-ppl==1.9.1", "scipy"),
        ),
    ),
    Library(
        "python-doctr",
        requirements=("python-doctr",),
        imports=("doctr", "doctr.models"),
        programs=("python_doctr_pages",),
    ),
    Library(
        "pytorch-crf",
        requirements=("pytorch-crf",),
        imports=("torchcrf",),
        programs=("pytorch_crf_tags",),
    ),
    Library(
        "pytorch-forecasting",
        requirements=("pytorch-forecasting",),
        imports=("pytorch_forecasting",),
        programs=("pytorch_forecasting_series",),
    ),
    Library(
        "pytorch-ignite",
        requirements=("pytorch-ignite",),
        imports=("ignite", "ignite.engine", "ignite.handlers", "ignite.metrics"),
        programs=("ignite_engine",),
        own=OwnTests(
            "pytorch/ignite",
            tests=(
                "tests/ignite/engine",
                "tests/ignite/handlers",
                "tests/ignite/metrics",
                "tests/ignite/test_utils.py",
            ),
            arguments=("-k", "not distrib and not xla and not hvd and not cuda"),
            requirements=("scikit-learn", "pytest-mock", "scipy", "pandas"),
            one_in=20,
        ),
    ),
    Library(
        "pytorch-lightning",
        requirements=("pytorch-lightning",),
        imports=("pytorch_lightning",),
        programs=("pytorch_lightning_trainer",),
    ),
    Library(
        "pytorch-metric-learning",
        requirements=("pytorch-metric-learning",),
        imports=("pytorch_metric_learning.losses", "pytorch_metric_learning.miners", "pytorch_metric_learning.testers"),
        programs=("pytorch_metric_learning_embedding",),
        own=OwnTests(
            "KevinMusgrave/pytorch-metric-learning",
            tests=("tests",),
            requirements=("pytorch-metric-learning==2.8.1", "scikit-learn", "scipy", "faiss-cpu", "torchvision"),
            variables={"TEST_DEVICE": "cpu", "TEST_DTYPES": "float32,float64"},
            left_out={"*large_k*": "takes many minutes"},
            one_in=5,
        ),
    ),
    Library(
        "pytorch-msssim",
        requirements=("pytorch-msssim",),
        imports=("pytorch_msssim",),
        programs=("pytorch_msssim_loss",),
    ),
    Library(
        "pytorch-optimizer",
        requirements=("pytorch-optimizer",),
        imports=("pytorch_optimizer",),
        programs=("pytorch_optimizer_steps",),
        own=OwnTests(
            "kozistr/pytorch_optimizer",
            tests=("tests",),
            arguments=("-o", "addopts="),  # without an option of a plugin
            left_out={"*compile*": "compiles"},
            one_in=10,
        ),
    ),
    Library(
        "pytorch-tabnet",
        requirements=("pytorch-tabnet", "pandas"),
        imports=("pytorch_tabnet.tab_model", "pytorch_tabnet.pretraining"),
        programs=("pytorch_tabnet_tables",),
        gaps=("needs the package pandas, for which it does not ask",),
    ),
    Library(
        "roma",
        requirements=("roma",),
        imports=("roma",),
        programs=("roma_rotations",),
    ),
    Library(
        "rotary-embedding-torch",
        requirements=("rotary-embedding-torch",),
        imports=("rotary_embedding_torch",),
        programs=("rotary_embedding_torch_attention",),
    ),
    Library(
        "sae-lens",
        requirements=("sae-lens",),
        imports=("sae_lens",),
        programs=("sae_lens_autoencoders",),
    ),
    Library(
        "safetensors",
        requirements=("safetensors",),
        imports=("safetensors", "safetensors.torch"),
        programs=("safetensors_files",),
        own=OwnTests(
            "huggingface/safetensors",
            tests=tuple(
                f"tests/test_{name}.py"
                for name in ("handle", "multithreaded", "pt_comparison", "pt_model", "simple", "threadable")
            ),
            folder="bindings/python",
            requirements=("h5py", "huggingface_hub"),
        ),
        quick=True,
    ),
    Library(
        "sbi",
        requirements=("sbi", "six"),
        imports=("sbi.inference", "sbi.neural_nets", "sbi.analysis"),
        programs=("sbi_inference",),
        gaps=("sbi.analysis needs the package six, for which it does not ask",),
    ),
    Library(
        "schedulefree",
        requirements=("schedulefree",),
        imports=("schedulefree",),
        programs=("schedulefree_steps",),
    ),
    Library(
        "segmentation-models-pytorch",
        requirements=("segmentation-models-pytorch",),
        imports=("segmentation_models_pytorch",),
        programs=("segmentation_models_pytorch_nets",),
    ),
    Library(
        "sentence-transformers",
        requirements=("sentence-transformers",),
        imports=("sentence_transformers",),
        programs=("sentence_transformers_embed",),
        own=OwnTests(
            "huggingface/sentence-transformers",
            tests=tuple(
                f"tests/{name}"
                for name in (
                    "util",
                    "base/samplers",
                    "base/test_data_collator.py",
                    "base/modules/test_router.py",
                    "sentence_transformer/modules",
                )
            ),
            together=20,
            one_in=2,
            requirements=("sentence-transformers==6.1.0", "datasets", "accelerate", "pillow"),
            left_out={
                "*multi_process*": "starts processes that download models",
                "*pretrained*": "downloads models",
                "*backends*": "needs ONNX or OpenVINO",
            },
        ),
        quick=True,
    ),
    Library(
        "setfit",
        requirements=("setfit",),
        imports=("setfit",),
        programs=("setfit_classifier",),
    ),
    Library(
        "shap",
        requirements=("shap",),
        imports=("shap",),
        programs=("shap_explanations",),
    ),
    Library(
        "skorch",
        requirements=("skorch",),
        imports=("skorch", "skorch.callbacks"),
        programs=("skorch_classifier",),
        own=OwnTests(
            "skorch-dev/skorch",
            tests=("skorch/tests",),
            requirements=("flaky", "pandas", "fire", "pytest-cov", "tensorboard"),
            left_out={"*llm*": "downloads models", "*test_hf*": "downloads models", "*compil*": "compiles"},
            one_in=4,
        ),
        gaps=("a pickled net holds plain arrays, not what torch.save writes: torch_load_kwargs do not matter to it",),
    ),
    Library(
        "snntorch",
        requirements=("snntorch",),
        imports=("snntorch",),
        programs=("snntorch_spikes",),
    ),
    Library(
        "speechbrain",
        requirements=("speechbrain",),
        imports=("speechbrain", "speechbrain.lobes.features", "speechbrain.nnet.RNN", "speechbrain.nnet.losses"),
        programs=("speechbrain_recognizer",),
    ),
    Library(
        "stable-baselines3",
        requirements=("stable-baselines3",),
        imports=("stable_baselines3",),
        programs=("stable_baselines3_agents",),
        own=OwnTests(
            "DLR-RM/stable-baselines3",
            tests=("tests",),
            requirements=("opencv-python-headless", "pandas", "matplotlib", "tqdm", "rich", "tensorboard"),
            one_in=20,
        ),
    ),
    Library(
        "tensordict",
        requirements=("tensordict",),
        imports=("tensordict", "tensordict.nn"),
        programs=("tensordict_modules",),
        own=OwnTests(
            "pytorch/tensordict",
            tests=tuple(
                f"test/{name}"
                for name in (
                    "nn/test_nn.py",
                    "tensorclass/test_tensorclass.py",
                    "tensordict/test_errors.py",
                    "tensordict/test_generic.py",
                    "tensordict/test_lazy.py",
                    "tensordict/test_methods.py",
                    "tensordict/test_misc.py",
                    "tensordict/test_nameddims.py",
                    "tensordict/test_nontensor.py",
                    "tensordict/test_repr.py",
                    "utils/test_utils.py",
                )
            ),
            requirements=("tensordict==0.14.0", "h5py"),
            left_out={"*compile*": "compiles"},
            together=20,
            one_in=40,
        ),
        gaps=("strided nested tensors are not memory-mapped",),
    ),
    Library(
        "tensorly",
        requirements=("tensorly", "packaging"),
        imports=("tensorly",),
        programs=("tensorly_decompositions",),
    ),
    Library(
        "tianshou",
        requirements=("tianshou",),
        imports=("tianshou",),
        programs=("tianshou_agents",),
    ),
    Library(
        "timm",
        requirements=("timm", "torchvision"),
        imports=("timm", "timm.data", "timm.optim", "timm.scheduler"),
        programs=("timm_models",),
        own=OwnTests(
            "huggingface/pytorch-image-models",
            tests=tuple(
                f"tests/test_{name}.py"
                for name in ("layers", "layers_drop", "layers_pool", "models", "optim", "scheduler", "utils")
            ),
            # The smallest models of each file: all of them are hours.
            arguments=("-k", "not test_models or " + " or ".join(_TIMM_MODELS)),
            requirements=("expecttest",),
            left_out={
                "*test_model_inference*": "downloads weights",
                "*test_model_load_pretrained*": "downloads weights",
                "*torchscript*": _SCRIPTS,
                "*_fullgraph*": "compiles",
                "*test_compiled_*": "compiles",
                "*_export*": "exports programs, as python -m tests.ecosystem leaving does",
            },
            one_in=2,
        ),
        quick=True,
        gaps=("own tests: one ran out of time on a busy machine (43 s alone); those of optimizers are of 1.0.29",),
    ),
    Library(
        "torch-dct",
        requirements=("torch-dct",),
        imports=("torch_dct",),
        programs=("torch_dct_transforms",),
    ),
    Library(
        "torch-ema",
        requirements=("torch-ema",),
        imports=("torch_ema",),
        programs=("torch_ema_average",),
    ),
    Library(
        "torch-geometric",
        requirements=("torch-geometric",),
        imports=("torch_geometric", "torch_geometric.nn", "torch_geometric.loader", "torch_geometric.datasets"),
        programs=("torch_geometric_convs",),
        own=OwnTests(
            "pyg-team/pytorch_geometric",
            tests=("test/nn/aggr", "test/nn/conv", "test/nn/norm", "test/test_edge_index.py", "test/test_index.py"),
            requirements=("torch-geometric==2.8.0.post1",),
        ),
        gaps=(
            "sparse.mm with reduce= takes no EdgeIndex, and those from a loader's processes are not in shared memory",
            "what torch.jit.script returns cannot be saved if it has no program (what torch.jit.trace returns can)",
            "signatures are printed with tensorgrad.Tensor in them",
        ),
    ),
    Library(
        "torch-optimizer",
        requirements=("torch-optimizer",),
        imports=("torch_optimizer",),
        programs=("torch_optimizer_steps",),
    ),
    Library(
        "torchao",
        requirements=("torchao",),
        imports=("torchao", "torchao.quantization"),
        programs=("torchao_quantize",),
        gaps=(
            "its compiled kernels are not loaded: what is made for them, such as weights of four bits, raises an error",
        ),
    ),
    Library(
        "torchattacks",
        requirements=("torchattacks",),
        imports=("torchattacks",),
        programs=("torchattacks_attacks",),
        apart="it wants requests 2.25, and others a newer one",
    ),
    Library(
        "torchaudio",
        requirements=("torchaudio",),
        imports=("torchaudio", "torchaudio.functional", "torchaudio.models", "torchaudio.transforms"),
        programs=("torchaudio_features",),
        gaps=("load and save need torchcodec, which is compiled for PyTorch",),
    ),
    Library(
        "torchcde",
        requirements=("torchcde",),
        imports=("torchcde",),
        programs=("torchcde_cde",),
        own=OwnTests("patrick-kidger/torchcde", tests=("test",), requirements=("torchsde",)),
    ),
    Library(
        "torchdata",
        requirements=("torchdata",),
        imports=("torchdata", "torchdata.nodes", "torchdata.stateful_dataloader"),
        programs=("torchdata_nodes",),
    ),
    Library(
        "torchdiffeq",
        requirements=("torchdiffeq",),
        imports=("torchdiffeq",),
        programs=("torchdiffeq_ode",),
        own=OwnTests(
            "rtqichen/torchdiffeq",
            tests=tuple(f"tests/{name}_tests.py" for name in ("api", "event", "gradient", "norm", "odeint")),
            left_out={"*TestSolverError::test_odeint": "takes many minutes"},
        ),
    ),
    Library(
        "torcheval",
        requirements=("torcheval",),
        imports=("torcheval", "torcheval.metrics"),
        programs=("torcheval_metrics",),
    ),
    Library(
        "torchinfo",
        requirements=("torchinfo",),
        imports=("torchinfo",),
        programs=("torchinfo_summary",),
    ),
    Library(
        "torchio",
        requirements=("torchio",),
        imports=("torchio",),
        programs=("torchio_volumes",),
    ),
    Library(
        "torchmetrics",
        requirements=("torchmetrics", "torchvision"),
        imports=("torchmetrics", "torchmetrics.classification", "torchmetrics.image", "torchmetrics.text"),
        programs=("torchmetrics_metrics",),
        own=OwnTests(
            "Lightning-AI/torchmetrics",
            tests=(
                "tests/unittests/bases",
                "tests/unittests/classification",
                "tests/unittests/clustering",
                "tests/unittests/detection",
                "tests/unittests/image",
                "tests/unittests/nominal",
                "tests/unittests/pairwise",
                "tests/unittests/regression",
                "tests/unittests/retrieval",
                "tests/unittests/segmentation",
                "tests/unittests/shape",
                "tests/unittests/text",
                "tests/unittests/utilities",
                "tests/unittests/wrappers",
            ),
            arguments=("-o", "addopts="),  # without an option of a plugin
            requirements=(
                "cachier",
                "scikit-learn",
                "scipy",
                "psutil",
                "pytest-rerunfailures",
                "cloudpickle",
                "pandas",
                "statsmodels",
                "fairlearn",
                "nltk",
                "matplotlib",
                "pycocotools",
                "permetrics",
            ),
            together=4,
            one_in=25,
        ),
        quick=True,
        gaps=("own tests: two depend on the random numbers of those before them, and end alike on both sides alone",),
    ),
    Library(
        "torchopt",
        requirements=("torchopt",),
        imports=("torchopt", "torchopt.distributed"),
        programs=("torchopt_meta",),
    ),
    Library(
        "torchrl",
        requirements=("torchrl",),
        imports=(
            "torchrl",
            "torchrl.collectors",
            "torchrl.data",
            "torchrl.envs",
            "torchrl.modules",
            "torchrl.objectives",
        ),
        programs=("torchrl_agents",),
        own=OwnTests(
            "pytorch/rl",
            tests=(
                "test/modules",
                "test/objectives/test_dqn.py",
                "test/objectives/test_ppo.py",
                "test/objectives/test_values.py",
                "test/rb",
                "test/test_distributions.py",
                "test/test_exploration.py",
                "test/test_postprocs.py",
                "test/test_specs.py",
                "test/transforms",
            ),
            requirements=("torchrl==0.14.0", "scipy", "gymnasium"),
            left_out={
                "*compile*": "compiles",
                "*test_rb_distributed*": "calls other processes by torch.distributed.rpc",
                "*RemoteTensorDictReplayBuffer*": "calls other processes by torch.distributed.rpc",
            },
            together=20,
            one_in=80,
        ),
    ),
    Library(
        "torchsde",
        requirements=("torchsde",),
        imports=("torchsde",),
        programs=("torchsde_sde",),
        own=OwnTests(
            "google-research/torchsde",
            tests=tuple(
                f"tests/test_{n}.py" for n in ("brownian_interval", "brownian_path", "brownian_tree", "sdeint")
            ),
            one_in=10,
        ),
    ),
    Library(
        "torchsummary",
        requirements=("torchsummary",),
        imports=("torchsummary",),
        programs=("torchsummary_table",),
    ),
    Library(
        "torchvision",
        requirements=("torchvision",),
        imports=("torchvision", "torchvision.models", "torchvision.ops", "torchvision.transforms.v2"),
        programs=("torchvision_models", "torchvision_images", "torchvision_ops"),
        own=OwnTests(
            "pytorch/vision",
            tests=tuple(
                f"test/test_{name}.py"
                for name in (
                    "ops",
                    "models",
                    "backbone_utils",
                    "datasets_samplers",
                    "datasets_utils",
                    "image",
                    "models_detection_anchor_utils",
                    "models_detection_negative_samples",
                    "models_detection_utils",
                    "transforms",
                    "transforms_tensor",
                    "transforms_v2",
                    "transforms_v2_utils",
                    "tv_tensors",
                    "utils",
                )
            ),
            requirements=("scipy", "pytest-mock"),
            left_out={
                "*jit*": _SCRIPTS,
                "*script*": _SCRIPTS,
                "*cuda*": "needs a GPU",
                "*quantized*": "quantizes models",
                "*compil*": "compiles",
                "*dynamo*": "compiles",
            },
            one_in=50,
        ),
        quick=True,
        gaps=(
            "own tests: those of version 0.25; test_ops needs torch.testing._internal",
            "what torch.jit.script returns cannot be saved if it has no program (what torch.jit.trace returns can)",
            "the operators for quantized tensors and for boxes with an angle raise an error",
            "colors of 16 bits in PNG files are not read, nor videos",
        ),
    ),
    Library(
        "transformer-lens",
        requirements=("transformer-lens",),
        imports=("transformer_lens",),
        programs=("transformer_lens_circuits",),
    ),
    Library(
        "transformers",
        requirements=("transformers", "accelerate", "pillow", "scipy"),
        imports=("transformers", "transformers.trainer", "transformers.pipelines"),
        programs=(
            "transformers_decoders",
            "transformers_encoders",
            "transformers_pipelines",
            "transformers_trainer",
            "transformers_vision_audio",
        ),
        own=OwnTests(
            "huggingface/transformers",
            tests=tuple(f"tests/models/{name}/test_modeling_{name}.py" for name in _TRANSFORMERS_MODELS),
            requirements=(
                "transformers==5.4.0",
                "parameterized",
                "sentencepiece",
                "scipy",
                "pytest-env",
                "timeout-decorator",
                "pytest-xdist",
                "datasets",
                "requests",
            ),
            left_out=_TRANSFORMERS_LEFT_OUT,
            seconds=300,
            together=2,
            one_in=2,
        ),
        quick=True,
    ),
    Library(
        "trl",
        requirements=("trl", "peft"),
        imports=("trl",),
        programs=("trl_trainers",),
    ),
    Library(
        "ultralytics",
        requirements=("ultralytics",),
        imports=("ultralytics",),
        programs=("ultralytics_yolo",),
    ),
    Library(
        "ultralytics-thop",
        requirements=("ultralytics-thop",),
        imports=("thop",),
        programs=("ultralytics_thop_counts",),
    ),
    Library(
        "vector-quantize-pytorch",
        requirements=("vector-quantize-pytorch",),
        imports=("vector_quantize_pytorch",),
        programs=("vector_quantize_pytorch_codes",),
        own=OwnTests(
            "lucidrains/vector-quantize-pytorch",
            tests=("tests",),
            requirements=("vector-quantize-pytorch==1.31.0",),
        ),
    ),
    Library(
        "vit-pytorch",
        requirements=("vit-pytorch",),
        imports=("vit_pytorch", "vit_pytorch.cait", "vit_pytorch.cct", "vit_pytorch.cvt", "vit_pytorch.max_vit"),
        programs=("vit_pytorch_models",),
        own=OwnTests("lucidrains/vit-pytorch", tests=("tests",)),
    ),
    Library(
        "webdataset",
        requirements=("webdataset",),
        imports=("webdataset",),
        programs=("webdataset_shards",),
    ),
    Library(
        "x-transformers",
        requirements=("x-transformers",),
        imports=("x_transformers",),
        programs=("x_transformers_models",),
        own=OwnTests(
            "lucidrains/x-transformers",
            tests=("tests",),
            requirements=("x-transformers==2.26.4",),
            one_in=4,
        ),
    ),
    Library(
        "zuko",
        requirements=("zuko",),
        imports=("zuko",),
        programs=("zuko_flows",),
        own=OwnTests("probabilists/zuko", tests=("tests",)),
    ),
)

BY_NAME = {library.name: library for library in LIBRARIES}
