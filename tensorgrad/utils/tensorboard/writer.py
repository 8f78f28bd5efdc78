"""`SummaryWriter`: entries of many kinds, each in one call, into the files that TensorBoard reads."""

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
from tensorgrad.utils.tensorboard import embedding, graph, hparams, images, summary
from tensorgrad.utils.tensorboard.messages import messages


@cache
def default_bins() -> list[float]:
    """TensorFlow's limits of bins: powers of 1.1 from 1e-12 to 1e20 on both sides of 0."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [*(-limit for limit in reversed(limits)), 0.0, *limits]


class FileWriter:
    """One file of events, which a thread of the package tensorboard writes.

    Args:
        log_dir: the folder.
        max_queue: how many entries may wait for that thread.
        flush_secs: how often they are written to the disk at least, in seconds.
        filename_suffix: what the name of the file ends with.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        messages()
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Adds an `Event` message, of now unless `walltime` (seconds since 1970) says otherwise."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a `Summary` message."""
        self.add_event(messages().Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Any, Any], walltime: float | None = None) -> None:
        """Adds the messages ``GraphDef`` and ``RunMetadata`` of a graph."""
        made, steps = graph_profile
        self.add_event(messages().Event(graph_def=made.SerializeToString()), None, walltime)
        tagged = messages().TaggedRunMetadata(tag="step1", run_metadata=steps.SerializeToString())
        self.add_event(messages().Event(tagged_run_metadata=tagged), None, walltime)

    def flush(self) -> None:
        """Waits until all is on the disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Writes the rest, and ends the thread."""
        self.event_writer.close()


class SummaryWriter:
    """Writes what a training run has to tell into a folder; ``tensorboard --logdir runs`` shows it.

    Args:
        log_dir: the folder; by default a new one in ``runs``, named by the time and the machine.
        comment: what the name of that new one ends with.
        purge_step: TensorBoard is to forget what earlier files of the folder have from this step on.
        max_queue, flush_secs, filename_suffix: see :class:`FileWriter`.

    In all methods ``global_step`` is the place on the horizontal axis, and ``walltime`` the time in seconds since
    1970 if it is not now. Tensors, arrays and numbers are all taken.

    Raises:
        ModuleNotFoundError: the package ``tensorboard`` is not installed.

    Example::

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
        self._points: list[Any] = []  # what the projector is to show
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The run's own file; a new one after `close`."""
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
        """The folder."""
        return self.log_dir

    # --- numbers ---

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a point to a curve. ``new_style`` is a newer format, which may keep double precision.

        Raises: AssertionError if the value has several elements.
        """
        self._add(summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds a point to each of several curves of one chart. Each curve is a file in a folder of its own."""
        root = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{root}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = self._new_writer(folder)
            self.all_writers[folder].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Tensor, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds all elements of a tensor. Raises: ValueError from 2 GB on."""
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
        """Adds how many of the values lie in which range. ``bins``: "tensorflow", or anything `numpy.histogram` takes.

        Raises: ValueError if there are none, or none in a bin.
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
        """Adds a histogram that was counted elsewhere: the upper limit and the number of values of each bin.

        Raises: ValueError if the two are not of one length.
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
        """Adds precision against recall, from the true labels (0 or 1) and the probabilities of 1."""
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
        """Adds precision against recall from what was counted elsewhere, one number for each threshold."""
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
        """Adds a run's settings and its results, in a folder ``run_name`` (the time, by default) of their own.

        Args:
            hparam_domain_discrete: all values that a setting may have.

        Raises: TypeError if one of them is no dictionary; ValueError if a setting is no number and no text.
        """
        entries = hparams.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for entry in entries:
                writer._add(entry, global_step, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    # --- pictures, sounds, texts ---

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds a picture: bytes, or numbers from 0 to 1.

        Args:
            dataformats: its dimensions: "CHW", "HWC", "HW", ... ("NCHW" puts pictures into a grid).

        Raises: AssertionError if those do not fit.
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
        """Adds pictures, in a grid of rows of eight."""
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
        """Adds a picture with rectangles ``(xmin, ymin, xmax, ymax)`` on it, and their ``labels``.

        Raises: ModuleNotFoundError without the package pillow.
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
        """Adds a Matplotlib figure, or a list of figures in a grid; ``close``: pyplot may forget them.

        Raises: ModuleNotFoundError without the package matplotlib.
        """
        dataformats = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, images.figure_to_image(figure, close), global_step, walltime, dataformats)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Adds films of shape (N, T, C, H, W), with ``fps`` pictures a second.

        Raises: ModuleNotFoundError without the package pillow.
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
        """Adds a sound: amplitudes from -1 to 1, ``sample_rate`` of them a second."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a text, which may be Markdown."""
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
        """Adds points of many dimensions for the projector.

        Args:
            mat: one point in each row.
            metadata: the points' labels; with a ``metadata_header`` several for each.
            label_img: the points' pictures (N, C, H, W), from 0 to 1.

        Raises: AssertionError if those are not as many as there are points.
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
        """Adds points in space (batch, number, 3), coloured (0 to 255), and triangles between them (numbers of points).

        Raises: ValueError for another shape.
        """
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, Sequence]]) -> None:
        """Says which curves share a chart: ``{category: {chart: ["Multiline", tags]}}``.

        "Margin" in place of "Multiline" takes three tags: a curve, and its lower and upper limits.
        """
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Draws these curves into one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Draws a curve between its lower and its upper limits: three tags, or else an AssertionError."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The ops of one call ``model(*input_to_model)``, in boxes for the modules they run in.

        The model is called in evaluation mode, without recording for gradients.

        Args:
            input_to_model: the arguments as a tuple, or the only one.
            verbose: print the graph, too.
        """
        made, steps = graph.graph(model, input_to_model, verbose)
        self._get_file_writer().add_graph((made, steps))

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Raises: NotImplementedError. There is no ONNX here."""
        raise NotImplementedError("add_onnx_graph: there is no ONNX here; add_graph(model, input) shows a model")

    # --- the end ---

    def flush(self) -> None:
        """Waits until all is on the disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes the rest and closes the files. Adding more begins a new file."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
