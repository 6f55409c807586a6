"use strict";

// Formats of figures: short texts with units.

const END_OF_INPUT_MS = 2 ** 63; // the maximal watermark, 2^63 - 1, as a double
const wholeNumber = new Intl.NumberFormat("en");
const shortNumber = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function count(number) {
  return number < 100_000 ? wholeNumber.format(number) : shortNumber.format(number);
}

function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function rate(perSecond) {
  if (perSecond > 0 && perSecond < 0.05) return "< 0.1";
  return perSecond < 10 ? String(Math.round(perSecond * 10) / 10) : shortNumber.format(Math.round(perSecond));
}

// Rounded, but 100 % only for the whole and 0 % only for nothing, so small remainders stay visible.
function percent(part, whole) {
  if (part <= 0) return "0 %";
  if (part >= whole) return "100 %";
  const tenths = Math.round((1000 * part) / whole);
  return `${(Math.min(Math.max(tenths, 1), 999) / 10).toFixed(1)} %`;
}

function size(bytes) {
  const step = bytes > 0 ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  const amount = bytes / 1024 ** step;
  return `${amount.toFixed(step && amount < 100 && amount % 1 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

function span(seconds) {
  if (seconds > 0 && seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const at = UNITS.findIndex(([, length]) => seconds >= length);
  if (at < 0 || UNITS[at][0] === "s") return `${Math.round(seconds)} s`;
  const [[unit, length], [smaller, smallerLength]] = UNITS.slice(at);
  const amount = Math.floor(seconds / length);
  const rest = Math.floor((seconds - amount * length) / smallerLength);
  return `${wholeNumber.format(amount)} ${unit}${rest && amount < 10 ? ` ${rest} ${smaller}` : ""}`;
}

function ago(seconds) {
  return seconds < 1.5 ? "now" : `${span(Math.round(seconds))} ago`;
}

function clockTime(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString("en-GB");
}

function eventTime(milliseconds) {
  if (milliseconds >= END_OF_INPUT_MS) return "end of input";
  const moment = new Date(milliseconds); // invalid beyond the range of Date
  if (Number.isNaN(moment.getTime())) return `${wholeNumber.format(milliseconds)} ms`;
  return moment.toISOString().replace("T", " ").replace(".000Z", "Z");
}

function behind(watermarkMs) {
  if (watermarkMs === null) return "no watermark yet";
  if (watermarkMs >= END_OF_INPUT_MS) return "end of input";
  const seconds = (Date.now() - watermarkMs) / 1000;
  if (seconds < 0) return `${span(-seconds)} ahead`;
  return seconds < 10 ? `${seconds.toFixed(1)} s behind` : `${span(seconds)} behind`;
}
