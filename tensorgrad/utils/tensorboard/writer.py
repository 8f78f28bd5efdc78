"""`SummaryWriter`: adds entries of many kinds to the files that TensorBoard reads."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.utils.tensorboard import embedding, graph, images, summary
from tensorgrad.utils.tensorboard.messages import messages


@cache
def default_bins() -> list[float]:
    """TensorFlow's bin limits: powers of 1.1 from 1e-12 to 1e20 on both sides of 0."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [*(-limit for limit in reversed(limits)), 0.0, *limits]


class FileWriter:
    """One event file, which is written by a thread of the package tensorboard.

    Args:
        log_dir: the directory.
        max_queue: how many entries may wait for that thread.
        flush_secs: the longest time between two writes to disk, in seconds.
        filename_suffix: appended to the name of the file.

    Raises:
        ModuleNotFoundError: If the package tensorboard is not installed.
    """

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        messages()
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """Returns the log directory."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Adds an `Event` message, with the current time unless `walltime` (seconds since 1970) is given."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a `Summary` message."""
        self.add_event(messages().Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Any, Any], walltime: float | None = None) -> None:
        """Adds a graph, given as its messages `GraphDef` and `RunMetadata`."""
        made, steps = graph_profile
        self.add_event(messages().Event(graph_def=made.SerializeToString()), None, walltime)
        tagged = messages().TaggedRunMetadata(tag="step1", run_metadata=steps.SerializeToString())
        self.add_event(messages().Event(tagged_run_metadata=tagged), None, walltime)

    def flush(self) -> None:
        """Waits until everything is written to disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Writes the remaining entries and stops the thread."""
        self.event_writer.close()


class SummaryWriter:
    """Writes the log of a training run to a directory; `tensorboard --logdir runs` shows it.

    Args:
        log_dir: the directory; by default a new one in `runs`, named after the time and the machine.
        comment: appended to the name of that default directory.
        purge_step: makes TensorBoard discard what earlier files in the directory contain from this step on.
        max_queue, flush_secs, filename_suffix: see `FileWriter`.

    In all methods, `global_step` is the position on the horizontal axis, and `walltime` is the time in seconds
    since 1970, by default the current time. Values may be tensors, arrays or numbers.

    Raises:
        ModuleNotFoundError: If the package `tensorboard` is not installed.

    >>> from tensorgrad.utils.tensorboard import SummaryWriter   # doctest: +SKIP
    >>> with SummaryWriter("runs/first") as writer:              # doctest: +SKIP
    ...     for step in range(100):
    ...         writer.add_scalar("loss", 1 / (1 + step), step)
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._points: list[Any] = []  # entries for the projector
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """Returns the writer of the run's main file, opening a new file after `close`."""
        if self.file_writer is None:
            self.file_writer = self._new_writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                event, session = messages().Event, messages().SessionLog
                self.file_writer.add_event(event(step=self.purge_step, file_version="brain.Event:2"))
                start = session(status=session.START)
                self.file_writer.add_event(event(step=self.purge_step, session_log=start))
                self.purge_step = None
        return self.file_writer

    def _new_writer(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, entry: Any, global_step: Any, walltime: float | None) -> None:
        self._get_file_writer().add_summary(entry, global_step, walltime)

    def get_logdir(self) -> Any:
        """Returns the log directory."""
        return self.log_dir

    # --- numeric data ---

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a point to a curve.

        Args:
            tag: the name of the curve.
            scalar_value: the value.
            new_style: whether to use the newer format, which stores the value as a tensor.
            double_precision: whether the newer format keeps double precision.

        Raises:
            AssertionError: If the value has more than one element.
        """
        self._add(summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds a point to each of several curves in one chart. Each curve has its own file in a separate directory."""
        root = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{root}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = self._new_writer(folder)
            self.all_writers[folder].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Tensor, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds all elements of a tensor.

        Raises:
            ValueError: If the tensor has 2 GB or more.
        """
        self._add(summary.tensor(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds a histogram of the values.

        Args:
            tag: the name of the histogram.
            values: the values, of any shape.
            bins: "tensorflow", or anything that `numpy.histogram` accepts.
            max_bins: merges neighboring bins until there are about this many.

        Raises:
            ValueError: If there are no values, or none of them is in a bin.
        """
        bins = default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precomputed histogram, given as the upper limit of each bin and the number of values in it.

        Raises:
            ValueError: If the limits and the counts differ in length.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        entry = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(entry, global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = summary.THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve, from the true labels (0 or 1) and the predicted probabilities of 1."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = summary.THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve from precomputed counts, one value of each for every threshold."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        self._add(summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Adds the hyperparameters of a run and its results, in a subdirectory.

        Args:
            hparam_dict: the hyperparameters, by name: numbers, strings or one-element tensors.
            metric_dict: the results, by name.
            hparam_domain_discrete: all possible values of a hyperparameter, by name.
            run_name: the name of the subdirectory; by default the current time.

        Raises:
            TypeError: If an argument is not a dictionary, or a domain does not fit its hyperparameter.
            ValueError: If a hyperparameter has another type.
        """
        entries = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for entry in entries:
                writer._add(entry, global_step, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    # --- images, sounds, text ---

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds an image.

        Args:
            tag: the name of the image.
            img_tensor: the image, as uint8 values or as numbers from 0 to 1.
            dataformats: the order of its dimensions: "CHW", "HWC", "HW", ... ("NCHW" arranges images in a grid).

        Raises:
            AssertionError: If `dataformats` does not fit the image.
        """
        self._add(images.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds a batch of images, in a grid with rows of eight."""
        self._add(images.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """Adds an image with boxes `(xmin, ymin, xmax, ymax)` drawn on it, and their `labels`.

        Raises:
            ModuleNotFoundError: If the package pillow is not installed.
        """
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != len(box_tensor):
            labels = None
        entry = images.image_with_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(entry, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Adds a Matplotlib figure, or a list of figures in a grid. With `close`, they are closed in pyplot.

        Raises:
            ModuleNotFoundError: If the package matplotlib is not installed.
        """
        dataformats = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, images.figure_to_image(figure, close), global_step, walltime, dataformats)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Adds videos of shape (N, T, C, H, W), with `fps` frames per second.

        Raises:
            ModuleNotFoundError: If the package pillow is not installed.
        """
        self._add(images.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Adds a sound, given as amplitudes from -1 to 1, `sample_rate` of them per second."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a string, which may contain Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    # --- shapes and layouts ---

    def add_embedding(
        self,
        mat: Any,
        metadata: list | None = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: list[str] | None = None,
    ) -> None:
        """Adds high-dimensional points for the projector.

        Args:
            mat: the points, one per row.
            metadata: a label for each point, or a list of labels if there is a `metadata_header`.
            label_img: an image for each point, of shape (N, C, H, W), with values from 0 to 1.
            tag: the name of the set of points.
            metadata_header: the names of the labels.

        Raises:
            AssertionError: If there are not as many labels or images as points.
        """
        from google.protobuf import text_format
        from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

        root = Path(self._get_file_writer().get_logdir())
        self._points.append(
            embedding.write(root, tag, int(global_step or 0), mat, metadata, label_img, metadata_header)
        )
        config = ProjectorConfig(embeddings=self._points)
        (root / "projector_config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: dict | None = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds points in space, and optionally triangles between them. All arrays have shape (batch, number, 3).

        Args:
            tag: the name of the mesh.
            vertices: the coordinates of the points.
            colors: the colors of the points, from 0 to 255.
            faces: the triangles, as indices of points.
            config_dict: settings for the display.

        Raises:
            ValueError: If an array has another shape.
        """
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, Sequence]]) -> None:
        """Sets which curves share a chart: `{category: {chart: ["Multiline", tags]}}`.

        "Margin" instead of "Multiline" takes three tags: a curve, and its lower and upper limits.
        """
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Draws the given curves in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Draws a curve with its lower and upper limits.

        Raises:
            AssertionError: If there are not exactly three tags.
        """
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Adds the graph of one call `model(*input_to_model)`: its ops, in boxes for the modules they run in.

        The model is called in evaluation mode, with gradients disabled.

        Args:
            model: the model.
            input_to_model: a tuple of arguments, or a single argument.
            verbose: whether to print the graph as well.
            use_strict_trace: accepted for compatibility and ignored.
        """
        made, steps = graph.graph(model, input_to_model, verbose)
        self._get_file_writer().add_graph((made, steps))

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Always raises NotImplementedError: ONNX is not supported."""
        raise NotImplementedError("add_onnx_graph: ONNX is not supported; use add_graph(model, input) to show a model")

    # --- flushing and closing ---

    def flush(self) -> None:
        """Waits until everything is written to disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes the remaining entries and closes the files. Adding more entries starts a new file."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
