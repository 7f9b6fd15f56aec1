"use strict";
// Shows what the window's server has, and tells it how the spectator is to move.

const STATE_MS = 150, NEAR_M = 70, TURN = 0.004, WHEEL_M = 0.03, STEP_M = 1.5;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
let town = null, box = null, near = false, failures = 0;
let pending = {}, sending = false;

// What was done since the last command was taken goes together: a slow server isn't flooded.
async function command(change) {
  for (const [name, value] of Object.entries(change)) {
    pending[name] = name === "follow" || name === "x" || name === "y" ? value : (pending[name] || 0) + value;
  }
  if (sending) return;
  sending = true;
  while (Object.keys(pending).length) {
    const body = JSON.stringify(pending);
    pending = {};
    try { await fetch("/command", { method: "POST", body }); } catch { /* the state tells when it is gone */ }
  }
  sending = false;
}

const camera = byId("camera");
camera.addEventListener("pointerdown", (event) => camera.setPointerCapture(event.pointerId));
camera.addEventListener("pointermove", (event) => {
  if (event.buttons & 1) command({ yaw: -event.movementX * TURN, pitch: event.movementY * TURN });
});
camera.addEventListener("wheel", (event) => {
  event.preventDefault();
  command({ forward: -event.deltaY * WHEEL_M });
}, { passive: false });
const KEYS = { w: ["forward", 1], s: ["forward", -1], d: ["right", 1], a: ["right", -1], e: ["up", 1], q: ["up", -1] };
document.addEventListener("keydown", (event) => {
  const [name, sign] = KEYS[event.key.toLowerCase()] || [];
  if (name && !event.ctrlKey && !event.metaKey && !event.altKey) command({ [name]: sign * STEP_M });
});
byId("near").addEventListener("click", () => {
  near = !near;
  byId("near").setAttribute("aria-pressed", String(near));
});
byId("free").addEventListener("click", () => command({ follow: null }));

function look() {
  if (document.hidden) camera.removeAttribute("src");
  else camera.src = "/camera";
}
camera.addEventListener("error", () => setTimeout(look, 2000));
document.addEventListener("visibilitychange", look);
look();

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function drawActors(state, scale) {
  const kept = new Map([...byId("actors").children].map((each) => [each.dataset.id, each]));
  for (const [id, name, length, width, x, y, yaw] of state.actors) {
    let group = kept.get(String(id));
    kept.delete(String(id));
    if (!group) {
      const walker = name.startsWith("walker");
      group = shape("g", { "data-id": id });
      const title = shape("title", {});
      title.textContent = `${name} ${id}`;
      group.append(title, shape("circle", { class: "hit" }), walker ? shape("circle", { class: "actor walker" })
        : shape("rect", { class: "actor", x: -length, y: -width, width: 2 * length, height: 2 * width, rx: 0.6 }));
      group.addEventListener("click", () => command({ follow: id }));
      byId("actors").append(group);
    }
    group.setAttribute("transform", `translate(${x} ${y}) rotate(${yaw})`);
    group.children[1].setAttribute("r", Math.max(length, 9 * scale));
    if (group.children[2].tagName === "circle") group.children[2].setAttribute("r", Math.max(0.6, 3 * scale));
    else group.children[2].setAttribute("transform", `scale(${Math.max(1, 4 * scale / length)})`);
    group.children[2].classList.toggle("followed", state.following === id);
  }
  for (const gone of kept.values()) gone.remove();
}

function draw(state) {
  byId("problem").hidden = !state.problem;
  byId("problem").textContent = state.problem ? `The server can't be watched: ${state.problem}.` : "";
  if (!state.town) {
    if (state.problem) return;
    byId("figures").textContent = "connecting …";
    byId("actors").replaceChildren();
    byId("lights").replaceChildren();
    return;
  }
  const { name, digest, ...place } = state.town;
  if (digest !== town) {
    town = digest;
    box = place;
    byId("name").textContent = `carla-lite: ${name}`;
    for (const [key, value] of Object.entries({ ...box, href: "/town?" + digest })) byId("ground").setAttribute(key, value);
  }
  const [x, y, yaw] = state.camera;
  const view = near ? [x - NEAR_M, y - NEAR_M, 2 * NEAR_M, 2 * NEAR_M] : [box.x, box.y, box.width, box.height];
  byId("map").setAttribute("viewBox", view.join(" "));
  const scale = view[2] / byId("map").clientWidth;
  byId("spectator").setAttribute("transform", `translate(${x} ${y}) rotate(${yaw}) scale(${scale})`);
  drawActors(state, scale);
  byId("lights").replaceChildren(...state.lights.map(([lx, ly, colour]) =>
    shape("circle", { class: "light " + colour, cx: lx, cy: ly, r: Math.max(0.8, 3 * scale) })));
  const cars = state.actors.filter((each) => each[1].startsWith("vehicle")).length;
  byId("figures").textContent = `frame ${state.frame}, ${state.elapsed_s.toFixed(1)} s, ${cars} vehicles, ${state.actors.length - cars} walkers`;
  byId("free").disabled = state.following === null;
}

async function turn() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/state", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      draw(await answer.json());
      failures = 0;
    } catch (error) {
      failures += 1;
      if (error.message === "401") draw({ problem: "it was started again; open the address that it printed last" });
      else if (failures > 10) draw({ problem: "it doesn't answer any more" });
    }
  }
  setTimeout(turn, STATE_MS);
}
turn();
