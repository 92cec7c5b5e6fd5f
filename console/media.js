// Pictures in events, shown from blobs, because a data URL may be large. Only formats without scripts are shown. The page
// never loads pictures from other hosts.

/** Allowed formats. SVG is not allowed, because it can contain scripts. */
const PICTURE = /^data:(image\/(?:png|jpeg|gif|webp|avif|bmp));base64,([A-Za-z0-9+/=\s]*)$/;
const MAX_BYTES = 16 * 1024 * 1024;
/** The URL of the blob of each picture, by its data URL. */
const blobs = /** @type {Map<string, string>} */ (new Map());

/**
 * The URL of a blob with the bytes of a data URL.
 * @param {string} url
 * @returns {string | null} `null` if the URL is not a picture that may be shown
 */
export function pictureOf(url) {
  const known = blobs.get(url);
  if (known) return known;
  const [, type, text] = PICTURE.exec(url) ?? [];
  if (!type || text.length > MAX_BYTES * 1.4) return null;
  try {
    const bytes = Uint8Array.from(atob(text.replace(/\s/g, '')), (character) => character.charCodeAt(0));
    const made = URL.createObjectURL(new Blob([bytes], { type }));
    blobs.set(url, made);
    return made;
  } catch {
    return null;
  }
}

/** Releases all pictures when another run is shown. */
export function forgetPictures() {
  for (const made of blobs.values()) URL.revokeObjectURL(made);
  blobs.clear();
}
