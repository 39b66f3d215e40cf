// Reads an archive, checks the digests, and prints a line of JSON for each record.
import { createReadStream } from "node:fs";
import { WARCParser } from "warcio";

for await (const record of new WARCParser(createReadStream(process.argv[2]))) {
  const text = record.warcType === "warcinfo" ? "" : await record.contentText();
  console.log(JSON.stringify({
    type: record.warcType,
    url: record.warcTargetURI,
    status: record.httpHeaders?.statusCode,
    profile: record.warcHeader("WARC-Profile"),
    refersTo: record.warcRefersToTargetURI,
    refersToDate: record.warcRefersToDate,
    text,
  }));
}
