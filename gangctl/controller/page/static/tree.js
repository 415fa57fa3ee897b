// Brings the elements of the page up to date without replacing those that stay: focus, selection and the position of a
// screen reader survive an update. All text is set as text: no text can become markup.

export function h(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children: children.flat().filter((child) => child !== null && child !== "") };
}

// Makes the children of the parent those of the tree. An attribute `key` finds a child again after others came or went.
export function patch(parent, children) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    if (node.key !== undefined) keyed.set(node.key, node);
  }
  children.forEach((child, at) => {
    const here = parent.childNodes[at];
    const key = child.attributes?.key;
    let node = key === undefined ? here : keyed.get(key);
    if (node === undefined || !fits(node, child)) node = made(child);
    if (node !== here) parent.insertBefore(node, here ?? null);
    update(node, child);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

function fits(node, child) {
  if (child.tag === undefined) return node.nodeType === Node.TEXT_NODE;
  return node.key === child.attributes.key && node.localName === child.tag;
}

function made(child) {
  if (child.tag === undefined) return document.createTextNode("");
  const node = document.createElement(child.tag);
  node.key = child.attributes.key;
  return node;
}

function update(node, child) {
  if (child.tag === undefined) {
    const text = String(child);
    if (node.data !== text) node.data = text;
    return;
  }
  const wanted = { ...child.attributes };
  delete wanted.key;
  if (wanted.grow !== undefined) {
    node.style.flexGrow = wanted.grow;
    delete wanted.grow;
  }
  for (const [name, value] of Object.entries(wanted)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  for (const name of node.getAttributeNames()) {
    if (name !== "style" && !(name in wanted)) node.removeAttribute(name);
  }
  patch(node, child.children);
}
