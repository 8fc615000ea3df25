/** A pure step: what a frame makes of a state. */
export type Step<State, Frame> = (state: State, frame: Frame) => State;

/** Every so many frames the state is kept, so that going back costs no more than this many steps. */
const CHECKPOINT = 256;

/** The states that a log has gone through, at any position, without computing all of them each time. */
export class Replay<State, Frame> {
  readonly #frames: readonly Frame[];
  readonly #step: Step<State, Frame>;
  readonly #checkpoints: State[];

  constructor(frames: readonly Frame[], initial: State, step: Step<State, Frame>) {
    this.#frames = frames;
    this.#step = step;
    this.#checkpoints = [initial];
  }

  get length(): number {
    return this.#frames.length;
  }

  /** The state after the first `position` frames. */
  at(position: number): State {
    const end = Math.max(0, Math.min(Math.floor(position), this.#frames.length));
    const known = Math.min(Math.floor(end / CHECKPOINT), this.#checkpoints.length - 1);
    let state = this.#checkpoints[known] as State;
    for (let i = known * CHECKPOINT; i < end; i++) {
      state = this.#step(state, this.#frames[i] as Frame);
      if ((i + 1) % CHECKPOINT === 0) this.#keep((i + 1) / CHECKPOINT, state);
    }
    return state;
  }

  #keep(index: number, state: State): void {
    if (index === this.#checkpoints.length) this.#checkpoints.push(state);
  }
}
