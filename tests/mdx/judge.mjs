// Renders MDX pages with the real compiler and reports their tables.
//
// usage: node judge.mjs PAGES.json    where PAGES.json is ["page source", ...]
// prints [{error} | {tables: [[[cell, ...], ...], ...], rest}, ...]
//
// A cell is {align, html}. `rest` is the rendered page with its tables taken out. Imported and unknown
// components render as elements of their own name; names that only the page's imports define are undefined.

import {readFileSync} from 'node:fs'
import {compile} from '@mdx-js/mdx'
import remarkFrontmatter from 'remark-frontmatter'
import remarkGfm from 'remark-gfm'

const Fragment = Symbol('fragment')
const AsyncFunction = (async () => {}).constructor

function dropStatements(found) {
  return () => (tree) => {
    const visit = (node) => {
      if (/^[A-Z]|\./.test(node.name ?? '')) found.components.add(node.name.split('.')[0])
      for (const child of node.children ?? []) visit(child)
    }
    visit(tree)
    tree.children = tree.children.filter((node) => node.type !== 'mdxjsEsm')
  }
}

function component(name) {
  const render = ({children}) => ({type: `component:${name}`, props: {children}})
  return new Proxy(render, {get: (target, key) => key in target ? target[key] : typeof key === 'string' ? component(`${name}.${key}`) : undefined})
}

const jsx = (type, props) => typeof type === 'function' ? type(props) : {type, props}

async function render(source) {
  const found = {components: new Set()}
  const code = String(await compile(source, {
    outputFormat: 'function-body',
    remarkPlugins: [remarkGfm, remarkFrontmatter, dropStatements(found)]
  }))
  const components = Object.fromEntries([...found.components].map((name) => [name, component(name)]))
  const unknown = []
  for (let tries = 0; ; tries++) {
    try {
      const {default: Content} = await new AsyncFunction('runtime', ...unknown, code)({Fragment, jsx, jsxs: jsx})
      return Content({components})
    } catch (error) {
      const name = error instanceof ReferenceError && / is not defined/.test(error.message) && error.message.split(' ')[0]
      if (!name || unknown.includes(name) || tries > 50) throw error
      unknown.push(name)
    }
  }
}

function flat(children) {
  const list = []
  const add = (child) => {
    if (Array.isArray(child)) child.forEach(add)
    else if (child === null || child === undefined || typeof child === 'boolean') return
    else if (typeof child !== 'object') {
      if (typeof list.at(-1) === 'string') list.push(list.pop() + String(child))
      else if (String(child)) list.push(String(child))
    } else if (child.type === Fragment) add(child.props.children)
    else list.push(child)
  }
  add(children)
  return list
}

const escape = (text) => text.replace(/[&<>"]/g, (char) => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[char])

function html(children) {
  return flat(children).map((node) => {
    if (typeof node === 'string') return escape(node)
    const {children: inner, ...attributes} = node.props
    const written = Object.keys(attributes).sort().map((name) => ` ${name}="${escape(JSON.stringify(attributes[name]) ?? '')}"`)
    return `<${node.type}${written.join('')}>${html(inner)}</${node.type}>`
  }).join('')
}

function elements(node, type) {
  const hits = []
  for (const child of flat(node)) {
    if (typeof child === 'string') continue
    if (child.type === type) hits.push(child)
    else hits.push(...elements(child.props.children, type))
  }
  return hits
}

function cell(node) {
  const align = node.props.style?.textAlign ?? node.props.align ?? ''
  return {align: node.type === 'th' && align === 'left' ? '' : align, html: html(node.props.children)}
}

function withoutTables(children) {
  return flat(children).map((node) => {
    if (typeof node === 'string') return node
    if (node.type === 'table') return '[table]'
    return {type: node.type, props: {...node.props, children: withoutTables(node.props.children)}}
  })
}

async function judge(source) {
  try {
    const page = await render(source)
    const tables = elements(page, 'table').map((table) => elements(table, 'tr').map((row) =>
      flat(row.props.children).filter((node) => node.type === 'th' || node.type === 'td').map(cell)))
    return {tables, rest: html(withoutTables(page))}
  } catch (error) {
    return {error: String(error.message ?? error)}
  }
}

const pages = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const verdicts = []
for (const page of pages) verdicts.push(await judge(page))
process.stdout.write(JSON.stringify(verdicts))
