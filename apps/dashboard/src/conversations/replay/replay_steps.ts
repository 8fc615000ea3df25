/** A pure reducer: the state after one more frame. */
export type Step<State, Frame> = (state: State, frame: Frame) => State;

/** A checkpoint is kept every so many frames: going back costs at most this many steps. */
const INTERVAL = 256;

/** The states of a log at any position, without computing all of them each time. */
export class Replay<State, Frame> {
  readonly #frames: readonly Frame[];
  readonly #step: Step<State, Frame>;
  readonly #checkpoints: State[];

  constructor(frames: readonly Frame[], initial: State, step: Step<State, Frame>) {
    this.#frames = frames;
    this.#step = step;
    this.#checkpoints = [initial];
  }

  /** The state after the first `position` frames. */
  at(position: number): State {
    const end = Math.max(0, Math.min(Math.floor(position), this.#frames.length));
    const known = Math.min(Math.floor(end / INTERVAL), this.#checkpoints.length - 1);
    let state = this.#checkpoints[known] as State;
    for (let i = known * INTERVAL; i < end; i++) {
      state = this.#step(state, this.#frames[i] as Frame);
      if ((i + 1) % INTERVAL === 0 && (i + 1) / INTERVAL === this.#checkpoints.length)
        this.#checkpoints.push(state);
    }
    return state;
  }
}
