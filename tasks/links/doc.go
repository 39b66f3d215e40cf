// Package links finds where a crawl goes on: the links of a page, the URLs of
// a sitemap, and the one form of a URL by which it is known whether it has been
// there. It does no I/O and bounds what it takes from one text.
//
// What it reads is written by strangers, so nothing in it is an error that ends a
// crawl: [FromPage] takes anything, and [ReadSitemap] keeps what came before a
// mistake. Whether a crawl should go to a URL at all is for its caller to say, with
// [Within] and package robots. The functions are safe for concurrent use.
package links
